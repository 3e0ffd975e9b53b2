package mcpclient

import (
	"cmp"
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

// moduleVersion returns the version of kitbag in the program.
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

// errExitedOnDiscover means that the server exited on the unknown method server/discover. Such a server accepts initialize
// when it is started again.
var errExitedOnDiscover = errors.New("the server exited when it received server/discover")

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
		return err // initialize would fail for the same reason
	}
	return c.initialize(ctx, "")
}

// handshakeStdio sends server/discover. If the server refuses, or does not answer within probeTimeout, it sends
// initialize. A server that starts slowly then gets both, and answers the request that it knows.
func (c *conn) handshakeStdio(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		result initResult
		err    error
	}
	start := func(request func(context.Context, string) (initResult, error), version string) <-chan answer {
		out := make(chan answer, 1)
		go func() {
			res, err := request(ctx, version)
			out <- answer{res, err}
		}()
		return out
	}
	discovered := start(c.requestDiscover, mcp.LATEST_PROTOCOL_VERSION)
	var got answer
	select {
	case got = <-discovered:
		if got.err != nil && !c.dead() {
			return c.initialize(ctx, "")
		}
	case <-time.After(probeTimeout):
		initialized := start(c.requestInitialize, "")
		select { // if the first answer is an error, the other request may succeed
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
		return fmt.Errorf("%w: %w", errExitedOnDiscover, got.err)
	}
	return got.err
}

func (c *conn) discover(ctx context.Context, version string) error {
	res, err := c.requestDiscover(ctx, version)
	if err != nil {
		c.setVersion("") // initialize is sent without a version header
		return err
	}
	return c.finishHandshake(ctx, res)
}

func (c *conn) initialize(ctx context.Context, version string) error {
	res, err := c.requestInitialize(ctx, version)
	if err != nil {
		return err
	}
	return c.finishHandshake(ctx, res)
}

// finishHandshake sets the negotiated revision for further requests, and sends the notification that older revisions
// require.
func (c *conn) finishHandshake(ctx context.Context, res initResult) error {
	res.Instructions = clip(visible.Text(res.Instructions), maxToolBytes) // no longer than a tool's definition
	res.ServerInfo = serverInfo{visible.Text(res.ServerInfo.Name), visible.Text(res.ServerInfo.Version)}
	c.protocol, c.server = c.protocolOf(res.ProtocolVersion), res
	c.setVersion(res.ProtocolVersion)
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
	c.headerVersion.Store(&version)
	if tr, ok := c.tr.(transport.HTTPConnection); ok {
		tr.SetProtocolVersion(version)
	}
}

// requestDiscover negotiates by server/discover, as of 2026-07-28, first with the version, then with one that the server
// names. An answer without versions is not accepted: some servers answer every method with an empty object.
func (c *conn) requestDiscover(ctx context.Context, version string) (res initResult, err error) {
	for range 2 {
		c.setVersion(version)
		raw, err := c.requestIn(ctx, c.protocolOf(version), "server/discover", nil, nil)
		var supported []string
		switch {
		case hasCode(err, codeUnsupportedVersion):
			supported = versionsOf(err)
		case err != nil:
			return res, err
		default:
			if err := strictjson.Unmarshal(raw, &res); err != nil {
				return res, fmt.Errorf("server/discover: %w", err)
			}
			supported = res.SupportedVersions
		}
		if err == nil && slices.Contains(supported, version) {
			if info, ok := res.Meta[mcp.MetaKeyServerInfo]; ok {
				_ = strictjson.Unmarshal(info, &res.ServerInfo) // which is only for display
			}
			res.ProtocolVersion = version
			return res, nil
		}
		version = mcp.NegotiateMutuallySupportedVersion(supported)
		if !mcp.IsModernProtocol(version) {
			return res, fmt.Errorf("server/discover: the server supports %q, of which this client supports none without initialize", supported)
		}
	}
	return res, errors.New("server/discover: the server refuses the versions that it lists")
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
func (c *conn) requestInitialize(ctx context.Context, version string) (res initResult, err error) {
	p := c.protocolOf("")
	raw, err := c.requestIn(ctx, p, "initialize", map[string]any{
		"protocolVersion": cmp.Or(version, mcp.LATEST_LEGACY_PROTOCOL_VERSION),
		"clientInfo":      clientInfo, "capabilities": c.hub.capabilities(c.kind, p.notifies()),
	}, nil)
	if err != nil {
		return res, err
	}
	if err := strictjson.Unmarshal(raw, &res); err != nil {
		return res, fmt.Errorf("initialize: %w", err)
	}
	if !mcp.IsValidProtocolVersion(res.ProtocolVersion) || mcp.IsModernProtocol(res.ProtocolVersion) {
		return res, fmt.Errorf("initialize: the server requires protocol %q, which is not negotiable by initialize", res.ProtocolVersion)
	}
	return res, nil
}

// changeFilter returns the lists whose changes the server announces, as the filter of subscriptions/listen.
func (r *initResult) changeFilter() map[string]any {
	filter := map[string]any{}
	for _, capability := range []string{"tools", "groups", "prompts", "resources"} {
		var c struct {
			ListChanged bool `json:"listChanged"`
		}
		if json.Unmarshal(r.Capabilities[capability], &c) == nil && c.ListChanged {
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
func (r *initResult) declares(capability string) bool {
	if r.Capabilities[capability] != nil {
		return true
	}
	var extensions map[string]json.RawMessage
	return json.Unmarshal(r.Capabilities["extensions"], &extensions) == nil && extensions[capability] != nil
}
