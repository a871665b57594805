# Serves the dashboard for a team, see docs/how-to/team.md:
#   docker build -t sharding-inspector .
# Behind a proxy that signs users in: docs/how-to/docker-compose.yml.
# For one user, who alone reaches the port:
#   docker run --memory 16g --memory-swap 16g -p 127.0.0.1:8501:8501 sharding-inspector --without-sign-in
#
# A tag can be moved to another image, a digest cannot. Look it up once, check it, and pin it for each build:
#   docker pull python:3.13-slim
#   docker image inspect --format '{{index .RepoDigests 0}}' python:3.13-slim
#   docker build --build-arg BASE=python:3.13-slim@sha256:THE_DIGEST -t sharding-inspector .
ARG BASE=python:3.13-slim
FROM ${BASE}

# Chromium draws figures as PNG and SVG.
RUN apt-get update \
    && apt-get install -y --no-install-recommends chromium-headless-shell fonts-dejavu-core \
    && rm -rf /var/lib/apt/lists/*

# pip installs only files with these hashes, and nothing else while it builds the project.
COPY requirements-image.txt /
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /requirements-image.txt
COPY . /source
RUN pip install --no-cache-dir --no-deps --no-build-isolation /source && rm -rf /source

RUN useradd --create-home inspector
USER inspector
WORKDIR /home/inspector

EXPOSE 8501
# Behind a proxy, the server refuses this check (403), which shows that it answers.
HEALTHCHECK CMD ["python", "-I", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8501, timeout=5); c.request('GET', '/ready'); exit(c.getresponse().status not in (200, 403))"]
ENTRYPOINT ["sharding-inspector", "serve", "--address", "0.0.0.0"]
