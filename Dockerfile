# Serves the dashboard for a team, see docs/how-to/team.md:
#   docker build -t sharding-inspector .
#   docker run -p 8501:8501 -v $PWD/secrets.toml:/secrets.toml:ro sharding-inspector --secrets /secrets.toml
# For one user, who alone reaches the port:
#   docker run -p 127.0.0.1:8501:8501 sharding-inspector --insecure-open
FROM python:3.13-slim

# Chromium draws figures as PNG and SVG.
RUN apt-get update \
    && apt-get install -y --no-install-recommends chromium-headless-shell fonts-dejavu-core \
    && rm -rf /var/lib/apt/lists/*

COPY . /source
RUN pip install --no-cache-dir '/source[team]' && rm -rf /source

RUN useradd --create-home inspector
USER inspector
WORKDIR /home/inspector

EXPOSE 8501
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/ready', timeout=5)"]
ENTRYPOINT ["sharding-inspector", "serve", "--address", "0.0.0.0"]
