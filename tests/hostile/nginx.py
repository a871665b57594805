"""An nginx that signs users in with a password, in front of a team server."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from pathlib import Path

from benchmarks import processes
from tests.browser.server import free_port

PASSWORD = "the password of a user"
HEADER = "X-Forwarded-Email"
_CONFIGURATION = """
daemon off;
user {user};
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; "" close; }}
    proxy_http_version 1.1;
    proxy_request_buffering off;
    proxy_read_timeout 1h;
    client_max_body_size 0;
    proxy_set_header Host $http_host;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Email $remote_user;
    proxy_set_header X-Proxy-Secret "{secret}";
    server {{
        listen 127.0.0.1:{port};
        location / {{
            auth_basic "team";
            auth_basic_user_file {folder}/users;
            proxy_pass {upstream};
        }}
        location = /_stcore/health {{ proxy_pass {upstream}; }}
        location = /ready {{ proxy_pass {upstream}; }}
    }}
}}
"""


class Nginx:
    """Passes the requests of these users on to a server, whose address is `http://HOST:PORT` or
    `http://unix:PATH:`."""

    def __init__(self, folder: Path, upstream: str, secret: str, *users: str) -> None:
        folder.mkdir()
        self.port = free_port()
        self.url = f"http://localhost:{self.port}"
        (folder / "users").write_text("".join(f"{user}:{{PLAIN}}{PASSWORD}\n" for user in users))
        (folder / "nginx.conf").write_text(
            _CONFIGURATION.format(
                user=getpass.getuser(), folder=folder, port=self.port, upstream=upstream, secret=secret
            )
        )
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
        assert program, "nginx is missing, which run.py installs"
        self._process = subprocess.Popen([program, "-p", str(folder), "-c", str(folder / "nginx.conf")])
        processes.until(self._listens, "nginx")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)

    def _listens(self) -> bool:
        assert self._process.poll() is None, "nginx ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            return False
        return True
