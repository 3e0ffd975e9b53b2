package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
)

// clientInfo identifies the client to servers.
var clientInfo = json.RawMessage(fmt.Sprintf(`{"name":"kitbag","version":%q}`, moduleVersion()))

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

// probeTimeout is how long a server may take to answer server/discover before it is also sent initialize. Some
// older servers ignore unknown methods.
const probeTimeout = 2 * time.Second

// errProbed means that the server exited because of server/discover. Such servers accept initialize when they
// are started again.
var errProbed = errors.New("the server exited when it received server/discover")

// handshake negotiates the protocol revision. A version that is set, by configuration or an earlier handshake, is the
// only one requested.
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
	wait := probeTimeout
	if c.cfg.login != nil {
		wait = c.cfg.Timeouts.Start // the user may have to log in
	}
	probe, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := c.discover(probe, mcp.LATEST_PROTOCOL_VERSION)
	if err == nil || ctx.Err() != nil || c.dead() || errors.Is(err, ErrLogin) || isStatus(err, 401, 403) {
		return err
	}
	return c.initialize(ctx, "")
}

// handshakeStdio sends server/discover, and after probeTimeout also initialize: a server that starts slowly answers the
// request that it knows.
func (c *conn) handshakeStdio(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		result initResult
		err    error
	}
	discovered, initialized := make(chan answer, 1), make(chan answer, 1)
	go func() {
		h, err := c.requestDiscover(ctx, mcp.LATEST_PROTOCOL_VERSION)
		discovered <- answer{h, err}
	}()
	var got answer
	select {
	case got = <-discovered:
		if got.err != nil && !c.dead() {
			return c.initialize(ctx, "")
		}
	case <-time.After(probeTimeout):
		go func() {
			h, err := c.requestInitialize(ctx, "")
			initialized <- answer{h, err}
		}()
		select {
		case got = <-discovered:
			if got.err != nil && ctx.Err() == nil {
				got = <-initialized
			}
		case got = <-initialized:
			if got.err != nil && ctx.Err() == nil && !c.dead() {
				got = <-discovered
			}
		}
	}
	switch {
	case got.err == nil:
		return c.finishHandshake(ctx, got.result)
	case c.dead():
		return fmt.Errorf("%w: %w", errProbed, got.err)
	}
	return got.err
}

func (c *conn) discover(ctx context.Context, version string) error {
	h, err := c.requestDiscover(ctx, version)
	if err != nil {
		c.setVersion("")
		return err
	}
	return c.finishHandshake(ctx, h)
}

func (c *conn) initialize(ctx context.Context, version string) error {
	h, err := c.requestInitialize(ctx, version)
	if err != nil {
		return err
	}
	return c.finishHandshake(ctx, h)
}

// finishHandshake sets the negotiated revision for further requests, and sends the notification that older revisions
// require.
func (c *conn) finishHandshake(ctx context.Context, h initResult) error {
	h.Instructions = clip(visible.Text(h.Instructions), maxToolBytes)
	h.ServerInfo = serverInfo{visible.Text(h.ServerInfo.Name), visible.Text(h.ServerInfo.Version)}
	c.protocol, c.server = c.protocolOf(h.ProtocolVersion), h
	c.setVersion(h.ProtocolVersion)
	if !c.protocol.notifies() {
		return nil
	}
	if err := c.notifyServer(ctx, "notifications/initialized", nil); err != nil {
		return fmt.Errorf("notifications/initialized: %w", err)
	}
	return nil
}

// setVersion sets the revision for the HTTP header of further requests.
func (c *conn) setVersion(version string) {
	c.httpVersion.Store(&version)
	if h, ok := c.tr.(transport.HTTPConnection); ok {
		h.SetProtocolVersion(version)
	}
}

// requestDiscover negotiates by server/discover, as of 2026-07-28, first with the version, then with one that the server
// names. An answer without versions is not accepted: some servers answer every method with an empty object.
func (c *conn) requestDiscover(ctx context.Context, version string) (h initResult, err error) {
	for range 2 {
		c.setVersion(version)
		raw, err := c.requestIn(ctx, c.protocolOf(version), "server/discover", nil, nil)
		var supported []string
		switch {
		case hasCode(err, codeUnsupportedVersion):
			supported = versionsOf(err)
		case err != nil:
			return h, err
		default:
			if err := strictjson.Unmarshal(raw, &h); err != nil {
				return h, fmt.Errorf("server/discover: %w", err)
			}
			supported = h.SupportedVersions
		}
		if err == nil && slices.Contains(supported, version) {
			if info, ok := h.Meta[mcp.MetaKeyServerInfo]; ok {
				_ = strictjson.Unmarshal(info, &h.ServerInfo)
			}
			h.ProtocolVersion = version
			return h, nil
		}
		next := mcp.NegotiateMutuallySupportedVersion(supported)
		if next == "" || !mcp.IsModernProtocol(next) {
			return h, fmt.Errorf("server/discover: the server supports %q, of which this client supports none without initialize", supported)
		}
		version = next
	}
	return h, errors.New("server/discover: the server refuses the versions that it lists")
}

// versionsOf returns the versions that an unsupported-version error lists.
func versionsOf(err error) []string {
	var data struct {
		Supported []string `json:"supported"`
	}
	if ce, ok := errors.AsType[*CallError](err); ok {
		_ = strictjson.Unmarshal(ce.Data, &data)
	}
	return data.Supported
}

// requestInitialize negotiates by initialize, as until 2025-11-25.
func (c *conn) requestInitialize(ctx context.Context, version string) (h initResult, err error) {
	if version == "" {
		version = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	}
	raw, err := c.requestIn(ctx, c.protocolOf(""), "initialize", map[string]any{
		"protocolVersion": version, "clientInfo": clientInfo, "capabilities": c.hub.capabilities(c.kind, true),
	}, nil)
	if err != nil {
		return h, err
	}
	if err := strictjson.Unmarshal(raw, &h); err != nil {
		return h, fmt.Errorf("initialize: %w", err)
	}
	if !mcp.IsValidProtocolVersion(h.ProtocolVersion) || mcp.IsModernProtocol(h.ProtocolVersion) {
		return h, fmt.Errorf("initialize: the server requires protocol %q, which is not negotiable by initialize", h.ProtocolVersion)
	}
	return h, nil
}

// changeFilter returns the lists whose changes the server announces, as the filter of subscriptions/listen.
func (h *initResult) changeFilter() map[string]any {
	filter := map[string]any{}
	for _, capability := range []string{"tools", "groups", "prompts", "resources"} {
		var c struct {
			ListChanged bool `json:"listChanged"`
		}
		if json.Unmarshal(h.Capabilities[capability], &c) == nil && c.ListChanged {
			filter[capability+"ListChanged"] = true
		}
	}
	return filter
}

// An initResult is the server's answer to initialize or server/discover.
type initResult struct {
	ProtocolVersion   string                     `json:"protocolVersion"`
	SupportedVersions []string                   `json:"supportedVersions"`
	Capabilities      map[string]json.RawMessage `json:"capabilities"`
	Instructions      string                     `json:"instructions"`
	ServerInfo        serverInfo                 `json:"serverInfo"`
	Meta              map[string]json.RawMessage `json:"_meta"`
}

type serverInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// declares reports whether the server has the capability or extension.
func (h *initResult) declares(capability string) bool {
	if h.Capabilities[capability] != nil {
		return true
	}
	var extensions map[string]json.RawMessage
	return json.Unmarshal(h.Capabilities["extensions"], &extensions) == nil && extensions[capability] != nil
}
