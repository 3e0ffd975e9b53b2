package mcpclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/tool/host"
)

// Options configure how a server is used. The zero value suits most servers.
type Options struct {
	// IncludeTools, if not empty, are the only tools used; ExcludeTools are never used. The elements are globs
	// (path.Match) for the server's tool names.
	IncludeTools, ExcludeTools []string

	// Prefix begins the tool names; empty is "mcp__NAME__", or no prefix if NoPrefix is set. With NoPrefix the
	// server chooses whole names, so rules that were written for another tool also apply to the server's tool of the
	// same name. If a toolkit already has a tool of the name, it leaves the server's tool out, and reports the tool
	// in [github.com/kitbag-go/kitbag/toolkit.View.Skipped].
	Prefix   string
	NoPrefix bool

	// TrustReadOnly believes the readOnlyHint and idempotentHint of the server's tools, which are otherwise ignored.
	// Read-only tools may run in parallel, and need no approval; the modes default and dont-ask still require it
	// unless permission.Policy.TrustReadOnly is also set. Calls of tools with either hint may be repeated after a crash.
	TrustReadOnly bool

	// Pins, unless nil, withhold a tool that the server has changed after the tool was allowed. PinListed, unless
	// nil, reports whether a rule allows a tool, given the name that the model sees: such a tool is pinned when the
	// server first lists it.
	Pins      Pins
	PinListed func(tool string) bool

	// Elicitation, Sampling and Roots are what the server may request from the client; the client declares those
	// that are set. [ElicitCaller] and [SampleCaller] pass a request on to the caller of the tool. The functions are
	// called by several goroutines, with a context that ends with the call. Elicitation gets only questions that
	// pass [host.Elicitation.Check] after Clean; an answer that does not match the schema is not sent. Roots are
	// directories that the server may use instead of the ones in its own configuration; see [Client.SetRoots].
	Elicitation func(context.Context, host.Elicitation) (host.Answer, error)
	Sampling    func(context.Context, host.SampleRequest) (host.Sample, error)
	Roots       []string

	// Log, unless nil, gets the server's log messages; see [Client.SetLogLevel]. It is called on the reading
	// goroutine: it must not block, nor call the client.
	Log func(LogMessage)

	// Protocol is the protocol revision, such as "2025-11-25". If Protocol is empty the revision is negotiated.
	Protocol string

	// Stateless opens a session for each call and each list, and then closes it. By default one session is kept open.
	Stateless bool

	// PingInterval is how often an idle server is pinged; 0 is 30 s, negative never.
	PingInterval time.Duration

	// ListTTL is how long a list of tools is used before it is requested again; 0 relies on
	// the server to announce changes.
	ListTTL time.Duration

	Timeouts Timeouts
	Limits   Limits

	// OffloadDir is the directory for files with the parts of a result that exceed Limits.Result; the model gets the names
	// of the files. If OffloadDir is empty, the parts are dropped, with a notice.
	OffloadDir string
}

// Timeouts are how long a server may take. Zero fields are the defaults.
type Timeouts struct {
	Start time.Duration // to start, to complete the handshake, and to log in; 30 s, with OAuth 5 min
	Idle  time.Duration // for a call without progress; 60 s
	Call  time.Duration // for a call, with or without progress; 10 min
}

// Limits are how much a server may send and request. Zero fields are the defaults.
type Limits struct {
	Message int // bytes of a message; 64 MiB

	// Result is how much of a result is kept, in bytes: the sum of text, decoded images and other data, structured
	// content and metadata; 4 MiB.
	Result int

	// Samples is how often the server may request sampling in the lifetime of the client; 10. Negative means no
	// limit, for a Sampling with its own limits, such as those of the agent behind [SampleCaller].
	Samples int
}

// A config is the validated arguments of New, with the defaults filled in.
type config struct {
	Options
	name string
	wire wire

	command Command
	http    HTTP
	url     *url.URL // of http
	dial    Dial
	login   *login // of http.OAuth
}

func newConfig(name string, t Transport, opts *Options) (*config, error) {
	c := &config{name: name}
	if opts != nil {
		c.Options = *opts
	}
	if strings.TrimSpace(name) == "" {
		return nil, errors.New("MCP server: the name is empty; give the server a name")
	}
	if err := c.check(t); err != nil {
		return nil, fmt.Errorf("MCP server %q: %w", name, err)
	}
	c.setDefaults()
	return c, nil
}

func (c *config) check(t Transport) error {
	if err := checkName(c.name); err != nil {
		return err
	}
	if c.Protocol != "" && !slices.Contains(mcp.ValidProtocolVersions, c.Protocol) {
		return fmt.Errorf("Options.Protocol %q is unknown; use one of %s", c.Protocol, strings.Join(mcp.ValidProtocolVersions, ", "))
	}
	if t == nil {
		return errors.New("the transport is nil; give a Command, HTTP or a Dial")
	}
	if err := t.configure(c); err != nil {
		return err
	}
	if c.NoPrefix && c.Prefix != "" {
		return fmt.Errorf("Options.Prefix is %q and Options.NoPrefix is set; leave one of them out", c.Prefix)
	}
	for _, glob := range slices.Concat(c.IncludeTools, c.ExcludeTools) {
		if _, err := path.Match(glob, ""); err != nil {
			return fmt.Errorf("tool glob %q: %w", glob, err)
		}
	}
	// A negative timeout would fail every call with a misleading error.
	return errors.Join(
		notNegative("Options.Timeouts.Start", c.Timeouts.Start, "30 s"),
		notNegative("Options.Timeouts.Idle", c.Timeouts.Idle, "60 s"),
		notNegative("Options.Timeouts.Call", c.Timeouts.Call, "10 min"),
		notNegative("Options.ListTTL", c.ListTTL, "relies on the server"),
		notNegative("Options.Limits.Message", c.Limits.Message, "64 MiB"),
		notNegative("Options.Limits.Result", c.Limits.Result, "4 MiB"),
	)
}

// notNegative checks the value of a field; zero says what the value 0 means.
func notNegative[T int | time.Duration](field string, value T, zero string) error {
	if value < 0 {
		return fmt.Errorf("%s is %v; it must not be negative (0: %s)", field, value, zero)
	}
	return nil
}

func (c *config) setDefaults() {
	start := 30 * time.Second
	if c.http.OAuth != nil {
		start = 5 * time.Minute
	}
	c.Timeouts.Start = cmp.Or(c.Timeouts.Start, start)
	c.Timeouts.Idle = cmp.Or(c.Timeouts.Idle, time.Minute)
	c.Timeouts.Call = cmp.Or(c.Timeouts.Call, 10*time.Minute)
	c.PingInterval = cmp.Or(c.PingInterval, 30*time.Second)
	c.Limits.Message = cmp.Or(c.Limits.Message, 64<<20)
	c.Limits.Result = cmp.Or(c.Limits.Result, 4<<20)
	c.Limits.Samples = cmp.Or(c.Limits.Samples, 10)
	if !c.NoPrefix {
		c.Prefix = cmp.Or(c.Prefix, "mcp__"+legalName(c.name)+"__")
	}
}

// includes reports whether IncludeTools and ExcludeTools allow the use of a tool, given the server's name for it.
func (c *config) includes(name string) bool {
	matches := func(glob string) bool { ok, _ := path.Match(glob, name); return ok } // check has rejected invalid globs
	return (len(c.IncludeTools) == 0 || slices.ContainsFunc(c.IncludeTools, matches)) && !slices.ContainsFunc(c.ExcludeTools, matches)
}
