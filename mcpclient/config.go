package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/mark3labs/mcp-go/mcp"
)

// A Transport is the way messages travel.
type Transport string

// The transports. Auto is stdio for a Config with a Command; for a URL it is
// streamable HTTP, and SSE if the server turns out to know nothing newer.
const (
	Auto  Transport = ""
	Stdio Transport = "stdio"
	HTTP  Transport = "http"
	SSE   Transport = "sse"
)

// A Config says how a server is reached and how it is treated. Name and one
// of Command, URL and Dial are required; every other field may be zero.
type Config struct {
	// Name names the server in tool names and errors. It is unique in a program, and of at
	// most 40 bytes. It must not begin or end with an underscore, nor have two in a row,
	// counting the characters that become one; see Names in the package's documentation.
	Name string

	// A server that is started: Command with Args, in Dir (the program's own if
	// empty). It gets the few variables a program needs to find its things
	// (PATH, HOME, LANG, …), those named in InheritEnv, and Env. Nothing else
	// of the program's environment, so that no key reaches a server by accident.
	Command    string
	Args       []string
	Dir        string
	Env        map[string]string
	InheritEnv []string

	// A server that is there already. Headers are sent to the host of URL only,
	// not to one it redirects to. If that host is not named as this machine, no other
	// that it sends us to may be on this machine. HTTPClient, nil for one with plain
	// defaults, must not be changed afterwards; if its Transport is no
	// *http.Transport, that has to judge the addresses it connects to by itself.
	URL        string
	Headers    map[string]string
	HTTPClient *http.Client

	// OAuth says how to log in to the server of URL if it wants that; nil does
	// not.
	OAuth *OAuth

	Transport Transport

	// A server behind anything else that carries a message a line, such as a
	// socket, or a pipe to a server in the same program. Dial is called for each
	// connection, and Close of what it returns ends a Read and a Write under way.
	Dial func(context.Context) (io.ReadWriteCloser, error)

	// Protocol pins the protocol revision, "2025-11-25" for instance. Empty
	// asks the server once and remembers what it said.
	Protocol string

	// Stateless opens a session for each call and each listing and closes it
	// after. The zero value keeps one session, and keeps it alive.
	Stateless bool

	// IncludeTools, if not empty, are the only tools used; ExcludeTools are
	// never. Both hold globs (path.Match) over the server's own tool names.
	IncludeTools, ExcludeTools []string

	// Prefix comes before the tool names; empty is "mcp__NAME__".
	Prefix string

	// TrustReadOnly takes the tools' word for being read-only or idempotent. The zero
	// value takes neither: see Trust in the package's documentation.
	TrustReadOnly bool

	// Pins, unless nil, hold back what the server changes about a tool that was allowed
	// before. PinListed, unless nil, reports whether a tool, by the name that the model
	// sees, is allowed without anybody being asked, and so is pinned when it is first
	// listed: by a rule, for instance.
	Pins      Pins
	PinListed func(tool string) bool

	StartTimeout time.Duration // to start and introduce itself, and to log in; 0 is 30 s, with OAuth 5 min
	Timeout      time.Duration // of a call without any progress; 0 is 60 s
	MaxTimeout   time.Duration // of a call, progress or not; 0 is 10 min
	ListTTL      time.Duration // after which Tools lists anew; 0 trusts the server to say

	// PingInterval is how often a server that has nothing to do is asked
	// whether it still lives; 0 is 30 s, negative never.
	PingInterval time.Duration

	// MaxMessage is the largest message taken, in bytes; 0 is 64 MiB. MaxResult
	// is how much of a result is kept, in bytes of text, of images and other data
	// once decoded, of structured content and of metadata together; 0 is 4 MiB.
	// What is over goes to files in OffloadDir that the result names, or is
	// dropped with a notice if OffloadDir is empty.
	MaxMessage, MaxResult int
	OffloadDir            string

	// What the server may ask of us. Each is offered only if it is set. Elicit
	// asks the person, Sample the model; [AskCaller] and [SampleCaller] leave that
	// to whoever runs the call. They are called by several goroutines; the context
	// ends with the call that the question came up in. Questions come checked and with their text cleaned
	// ([host.Elicitation]); an answer that does not fit is not sent. Roots are
	// directories; see [Client.SetRoots]. They take the place of those that a server was
	// configured with: give them only to one that is to have them. WantsRoots is for a
	// host that fills them in; [Load] sets it where an entry says "roots": true.
	Elicit func(context.Context, host.Elicitation) (host.Answer, error)
	Sample func(context.Context, host.SampleRequest) (host.Sample, error)
	Roots  []string

	WantsRoots bool

	// MaxSamples is how often the server may ask for a sample in the lifetime of
	// the client; 0 is 10, negative any number of times, for a Sample that counts by
	// itself, as an agent behind SampleCaller does.
	MaxSamples int

	// Log, unless nil, is told what the server logs; see [Client.SetLogLevel]. It is
	// called on the goroutine that reads: it must not block, nor call the client.
	Log func(LogMessage)

	// Stderr, if not nil, gets what a started server writes there. It must not
	// block: the server would wait.
	Stderr io.Writer

	login *login // made by New of OAuth
}

// check returns the configuration with its defaults filled in, or what is
// wrong with it.
func (c Config) check() (Config, error) {
	bad := func(format string, args ...any) (Config, error) {
		return c, fmt.Errorf("MCP server %q: %w", c.Name, fmt.Errorf(format, args...))
	}
	switch {
	case strings.TrimSpace(c.Name) == "":
		return c, errors.New("MCP server: Config.Name is empty; give the server a name")
	case c.ways() != 1:
		return bad("%d of Command, URL and Dial are set; set the one that says how to reach it", c.ways())
	}
	if err := checkName(c.Name); err != nil {
		return bad("%w", err)
	}
	if c.URL == "" {
		if c.Transport != Auto && c.Transport != Stdio {
			return bad("transport %q needs a URL", c.Transport)
		}
		c.Transport = Stdio
	} else if err := c.checkURL(); err != nil {
		return bad("%w", err)
	}
	if c.Protocol != "" && !slices.Contains(mcp.ValidProtocolVersions, c.Protocol) {
		return bad("protocol %q is unknown; use one of %s", c.Protocol, strings.Join(mcp.ValidProtocolVersions, ", "))
	}
	for _, glob := range slices.Concat(c.IncludeTools, c.ExcludeTools) {
		if _, err := path.Match(glob, ""); err != nil {
			return bad("tool glob %q: %w", glob, err)
		}
	}
	if err := c.checkLimits(); err != nil {
		return bad("%w", err)
	}
	c.setDefaults()
	return c, nil
}

// checkLimits refuses what nobody can mean: a time-out that is over before it begins
// would fail every call, without saying that it was never tried.
func (c *Config) checkLimits() error {
	return errors.Join(
		notNegative("StartTimeout", c.StartTimeout, "is 30 s"),
		notNegative("Timeout", c.Timeout, "is 60 s"),
		notNegative("MaxTimeout", c.MaxTimeout, "is 10 min"),
		notNegative("ListTTL", c.ListTTL, "trusts the server"),
		notNegative("MaxMessage", c.MaxMessage, "is 64 MiB"),
		notNegative("MaxResult", c.MaxResult, "is 4 MiB"),
	)
}

// notNegative checks the field of that name; zero says what 0 is, in its place.
func notNegative[T int | time.Duration](field string, value T, zero string) error {
	if value < 0 {
		return fmt.Errorf("%s is %v; it must not be negative, and 0 %s", field, value, zero)
	}
	return nil
}

// ways returns how many ways to the server are set.
func (c *Config) ways() (n int) {
	for _, set := range []bool{c.Command != "", c.URL != "", c.Dial != nil} {
		if set {
			n++
		}
	}
	return n
}

func (c *Config) checkURL() error {
	switch c.Transport {
	case Auto, HTTP, SSE:
	default:
		return fmt.Errorf("transport %q cannot be used with a URL; use %q or %q", c.Transport, HTTP, SSE)
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("URL %q is not an absolute http or https URL", c.URL)
	}
	if c.OAuth != nil && (c.OAuth.Authorize == nil || c.OAuth.RedirectURL == "") {
		return errors.New("OAuth needs Authorize and RedirectURL")
	}
	if c.OAuth != nil {
		if err := secure(c.URL); err != nil {
			return fmt.Errorf("with OAuth: %w, or tokens could be read on the way", err)
		}
	}
	if c.Transport == SSE && mcp.IsModernProtocol(c.Protocol) {
		return fmt.Errorf("protocol %s does not exist over SSE", c.Protocol)
	}
	return nil
}

func (c *Config) setDefaults() {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	if c.OAuth != nil {
		or(&c.StartTimeout, 5*time.Minute)
	}
	or(&c.StartTimeout, 30*time.Second)
	or(&c.Timeout, time.Minute)
	or(&c.MaxTimeout, 10*time.Minute)
	or(&c.PingInterval, 30*time.Second)
	if c.MaxMessage == 0 {
		c.MaxMessage = 64 << 20
	}
	if c.MaxResult == 0 {
		c.MaxResult = 4 << 20
	}
	if c.MaxSamples == 0 {
		c.MaxSamples = 10
	}
	if c.Prefix == "" {
		c.Prefix = "mcp__" + legal(c.Name) + "__"
	}
}

// wants reports whether the configuration lets a tool of that name in.
func (c *Config) wants(name string) bool {
	in := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, name); return ok })
	}
	return (len(c.IncludeTools) == 0 || in(c.IncludeTools)) && !in(c.ExcludeTools)
}
