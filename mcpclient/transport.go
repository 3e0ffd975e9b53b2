package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/oauthurl"
)

// A Transport connects to a server: a [Command], [HTTP] or a [Dial].
type Transport interface {
	configure(c *config) error
}

// A Command is a server that the client starts as a process, and talks to over standard input and output. Path
// is required.
type Command struct {
	Path string   // of the program, or its name in PATH
	Args []string // without the program's name
	Dir  string   // where it runs; empty is the working directory of this program

	// Env are the server's environment variables, in addition to the few that programs need to find their files
	// (PATH, HOME, LANG, …) and to this program's variables that InheritEnv names. The server gets no others, so
	// that it does not receive keys by accident.
	Env        map[string]string
	InheritEnv []string

	// Stderr, unless nil, gets the server's standard error. A Write that blocks makes the server wait.
	Stderr io.Writer

	// Sandbox says what the server may access. With a Sandbox.Profile the server is started only if Confine is set.
	// Confine changes cmd so that the server runs in the sandbox s; cleanup is called when the server has ended, or
	// could not be started.
	Sandbox Sandbox
	Confine func(cmd *exec.Cmd, s Sandbox) (cleanup func() error, err error)
}

// HTTP is a running server that is reached by a URL, over streamable HTTP, or over HTTP with SSE if the server
// supports only that. URL is required.
type HTTP struct {
	URL string
	SSE bool // use only the HTTP+SSE transport of 2024-11-05

	// Headers are sent to the host of URL, but not to another host after a redirect.
	Headers map[string]string

	// Token, unless nil, returns the access token for each request to the host of URL. If the request is part of a call,
	// Token gets the context of the call.
	Token func(context.Context) (string, error)

	// OAuth configures the login if the server demands one; nil never logs in.
	OAuth *OAuth

	// Client makes the requests; nil uses a default client. It must not be changed while it is used. Unless URL is
	// on this machine, no URL that the server names may lead to this machine: a Client whose Transport is not an
	// *http.Transport must check that itself.
	Client *http.Client
}

// A Dial connects to a server over anything that carries one message a line, such as a socket, or a pipe to a
// server in the same program. It is called for each connection. Close of the returned value must end a Read and
// a Write in progress.
type Dial func(context.Context) (io.ReadWriteCloser, error)

// A wire is a kind of transport.
type wire int

const (
	wireAuto  wire = iota // streamable HTTP, or SSE if the server supports only that
	wireLines             // one message a line, for a Command or a Dial
	wireHTTP
	wireSSE
)

func (t Command) configure(c *config) error {
	if t.Path == "" {
		return errors.New("Command.Path is empty; name the program to start")
	}
	c.command, c.wire = t, wireLines
	return t.Sandbox.check()
}

func (t Dial) configure(c *config) error {
	if t == nil {
		return errors.New("the Dial is nil; give a function that connects")
	}
	c.dial, c.wire = t, wireLines
	return nil
}

func (t HTTP) configure(c *config) error {
	u, err := url.Parse(t.URL)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("HTTP.URL cannot be read: %w", e.Err) // without the URL, which may contain secrets
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("HTTP.URL %q is not an absolute http or https URL", publicURL(u))
	}
	if t.SSE {
		c.wire = wireSSE
		if mcp.IsModernProtocol(c.Protocol) {
			return fmt.Errorf("protocol %s is not available over SSE; leave Options.Protocol empty, or HTTP.SSE unset", c.Protocol)
		}
	}
	c.http, c.url = t, u
	switch {
	case t.Token == nil && t.OAuth == nil:
		return nil
	case t.Token != nil && t.OAuth != nil:
		return errors.New("HTTP.Token and HTTP.OAuth are both set; set one of them")
	case t.OAuth != nil && t.OAuth.Authorize != nil && t.OAuth.RedirectURL == "":
		return errors.New("HTTP.OAuth has Authorize, but no RedirectURL; set the URL to which the authorization server redirects")
	}
	if err := oauthurl.Secure(publicURL(u)); err != nil {
		return fmt.Errorf("with HTTP.Token or HTTP.OAuth: %w, or others could read the tokens", err)
	}
	return nil
}
