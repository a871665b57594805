# Serves the dashboard: docker build -t sharding-inspector . && docker run -p 8501:8501 sharding-inspector
# Behind another host name, add it to the command: --server.allowedHosts=my.host
FROM python:3.13-slim

# Chromium draws figures as PNG and SVG.
RUN apt-get update \
    && apt-get install -y --no-install-recommends chromium fonts-dejavu-core \
    && rm -rf /var/lib/apt/lists/*

COPY . /source
RUN pip install --no-cache-dir /source && rm -rf /source

RUN useradd --create-home inspector
USER inspector
WORKDIR /home/inspector

EXPOSE 8501
CMD ["sharding-inspector", "dashboard", "--server.address=0.0.0.0", "--server.headless=true"]
