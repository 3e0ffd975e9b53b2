package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// clientInfo is what we say of ourselves.
var clientInfo = map[string]any{"name": "kitbag", "version": moduleVersion()}

func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if strings.HasSuffix(m.Path, "/kitbag") && m.Version != "" && m.Version != "(devel)" {
				return m.Version
			}
		}
	}
	return "0.0.0"
}

// probeWait is how long a server may be silent about the newer way of saying
// hello before it is asked the older way. Some servers ignore what they do not
// know.
const probeWait = 2 * time.Second

// errProbed says that the server died of being asked the newer way. Such
// servers exist; started anew and asked the older way they work.
var errProbed = errors.New("the server ended when it was asked for its protocol")

// handshake agrees on a protocol revision. With a version, only that is asked
// for; it is pinned or was agreed on before.
func (c *conn) handshake(ctx context.Context, version string) error {
	switch {
	case version != "" && mcp.IsModernProtocol(version):
		return c.discover(ctx, version)
	case version != "" || c.kind == wireSSE:
		return c.initialize(ctx, version)
	case c.kind == wireHTTP:
		return c.handshakeHTTP(ctx)
	}
	return c.handshakeStdio(ctx)
}

func (c *conn) handshakeHTTP(ctx context.Context) error {
	wait := probeWait
	if c.cfg.login != nil {
		wait = c.cfg.Timeouts.Start // a person may have to log in
	}
	probe, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := c.discover(probe, mcp.LATEST_PROTOCOL_VERSION)
	if err == nil || ctx.Err() != nil || c.dead() || errors.Is(err, ErrLogin) || isStatus(err, 401, 403) {
		return err
	}
	return c.initialize(ctx, "")
}

// handshakeStdio asks both ways if the first gets no answer: a server that
// takes long to start answers the question it understands when it is up.
func (c *conn) handshakeStdio(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		version string
		hello   hello
		err     error
	}
	probe, old := make(chan answer, 1), make(chan answer, 1)
	go func() {
		v, h, err := c.askDiscover(ctx, mcp.LATEST_PROTOCOL_VERSION)
		probe <- answer{v, h, err}
	}()
	var got answer
	select {
	case got = <-probe:
		if got.err != nil && c.dead() {
			return fmt.Errorf("%w: %w", errProbed, got.err)
		}
		if got.err != nil {
			return c.initialize(ctx, "")
		}
	case <-time.After(probeWait):
		go func() {
			v, h, err := c.askInitialize(ctx, "")
			old <- answer{v, h, err}
		}()
		select {
		case got = <-probe:
			if got.err != nil && ctx.Err() == nil {
				got = <-old
			}
		case got = <-old:
			if got.err != nil && ctx.Err() == nil && !c.dead() {
				got = <-probe
			}
		}
		if got.err != nil && c.dead() {
			return fmt.Errorf("%w: %w", errProbed, got.err)
		}
		if got.err != nil {
			return got.err
		}
	}
	return c.agree(ctx, got.version, got.hello)
}

func (c *conn) discover(ctx context.Context, version string) error {
	v, h, err := c.askDiscover(ctx, version)
	if err != nil {
		c.speak("")
		return err
	}
	return c.agree(ctx, v, h)
}

func (c *conn) initialize(ctx context.Context, version string) error {
	v, h, err := c.askInitialize(ctx, version)
	if err != nil {
		return err
	}
	return c.agree(ctx, v, h)
}

// agree ends the handshake: from here on every request is of that revision. The
// older ones want to be told that it is over.
func (c *conn) agree(ctx context.Context, version string, h hello) error {
	h.Instructions = clip(visible.Text(h.Instructions), maxToolBytes)
	h.ServerInfo = serverInfo{visible.Text(h.ServerInfo.Name), visible.Text(h.ServerInfo.Version)}
	c.version, c.hello = version, h
	c.speak(version)
	if c.modern() {
		return nil
	}
	if err := c.tell(ctx, "notifications/initialized", nil); err != nil {
		return fmt.Errorf("notifications/initialized: %w", err)
	}
	return nil
}

// speak tells HTTP transports, and post, which revision to name in the header.
func (c *conn) speak(version string) {
	c.spoken.Store(&version)
	if h, ok := c.tr.(transport.HTTPConnection); ok {
		h.SetProtocolVersion(version)
	}
}

// askDiscover asks the way of 2026-07-28 and later. An answer that names no
// version is none: some servers answer everything with an empty object.
func (c *conn) askDiscover(ctx context.Context, version string) (string, hello, error) {
	var h hello
	for range 2 {
		c.speak(version)
		raw, err := c.requestAs(ctx, version, "server/discover", nil, nil)
		var supported []string
		switch {
		case hasCode(err, codeUnsupportedVersion):
			supported = versionsOf(err)
		case err != nil:
			return "", h, err
		default:
			if err := strictjson.Unmarshal(raw, &h); err != nil {
				return "", h, fmt.Errorf("server/discover: %w", err)
			}
			supported = h.SupportedVersions
		}
		if err == nil && slices.Contains(supported, version) {
			if info, ok := h.Meta[mcp.MetaKeyServerInfo]; ok {
				_ = strictjson.Unmarshal(info, &h.ServerInfo)
			}
			return version, h, nil
		}
		next := mcp.NegotiateMutuallySupportedVersion(supported)
		if next == "" || !mcp.IsModernProtocol(next) || next == version && err == nil {
			return "", h, fmt.Errorf("server/discover: the server supports %q, none of which is of this kind", supported)
		}
		version = next
	}
	return "", h, errors.New("server/discover: the server refuses the versions that it names")
}

// versionsOf reads the versions that an unsupported-version error names.
func versionsOf(err error) []string {
	var data struct {
		Supported []string `json:"supported"`
	}
	if ce, ok := errors.AsType[*CallError](err); ok {
		_ = strictjson.Unmarshal(ce.Data, &data)
	}
	return data.Supported
}

// askInitialize asks the way of the revisions until 2025-11-25.
func (c *conn) askInitialize(ctx context.Context, version string) (string, hello, error) {
	var h hello
	if version == "" {
		version = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	}
	raw, err := c.requestAs(ctx, "", "initialize", map[string]any{
		"protocolVersion": version, "clientInfo": clientInfo, "capabilities": c.hub.capabilities(c.kind, false),
	}, nil)
	if err != nil {
		return "", h, err
	}
	if err := strictjson.Unmarshal(raw, &h); err != nil {
		return "", h, fmt.Errorf("initialize: %w", err)
	}
	if !mcp.IsValidProtocolVersion(h.ProtocolVersion) || mcp.IsModernProtocol(h.ProtocolVersion) {
		return "", h, fmt.Errorf("initialize: the server wants protocol %q, which we do not speak this way", h.ProtocolVersion)
	}
	return h.ProtocolVersion, h, nil
}
