# The gateway over HTTP, as one static program that does not run as root:
#
#	docker build -t kitbag .
#	docker run -p 8080:8080 -e CI_TOKEN -v ./kitbag.json:/etc/kitbag/kitbag.json:ro kitbag
#
# kitbag.json has to name credentials, because a token is asked for on every address but
# loopback, and MCP servers by "url". For servers that are commands (npx, uvx) start from
# an image that has them, with this one's program:
#
#	FROM node:22-slim
#	COPY --from=kitbag /kitbag /usr/local/bin/kitbag
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags=-s -o /out/kitbag ./cmd/kitbag \
	&& mkdir /out/tmp /out/data && chmod 1777 /out/tmp && chown 65532:65532 /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /
# What the gateway writes is here: pins of servers, and an audit log ("file": "/data/audit.jsonl").
ENV HOME=/data
WORKDIR /data
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/kitbag", "mcp", "serve"]
CMD ["--config", "/etc/kitbag/kitbag.json", "--http", "0.0.0.0:8080"]
