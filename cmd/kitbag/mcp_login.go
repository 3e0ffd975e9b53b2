package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/mcpclient"
)

// storedLogins returns an OAuth with the directory in which logins are stored.
func storedLogins() (*mcpclient.OAuth, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("no place to store a login: %w", err)
	}
	return &mcpclient.OAuth{Dir: filepath.Join(dir, "kitbag", "tokens")}, nil
}

// withLogin makes the server use its stored login, if there is one. If the login has expired, connecting fails: only
// kitbag mcp login asks the user to log in.
func withLogin(cfg mcpclient.Server) mcpclient.Server {
	web, ok := cfg.Transport.(mcpclient.HTTP)
	if !ok {
		return cfg
	}
	for header := range web.Headers {
		if strings.EqualFold(header, "Authorization") {
			return cfg // the user has configured other credentials
		}
	}
	oauth, err := storedLogins()
	if err != nil || !oauth.LoggedIn(web.URL) {
		return cfg
	}
	web.OAuth = oauth
	cfg.Transport = web
	// The default with OAuth would leave minutes for a login in a browser.
	cfg.Options.Timeouts.Start = cmp.Or(cfg.Options.Timeouts.Start, 30*time.Second)
	return cfg
}

// addLoginRemedy adds the remedy to an error that a login would fix.
func addLoginRemedy(server string, err error) error {
	if errors.Is(err, mcpclient.ErrLogin) {
		return fmt.Errorf("%w; log in with: kitbag mcp login %s", err, server)
	}
	return err
}

// loginFlags are the flags of kitbag mcp login.
type loginFlags struct {
	mcpFlags
	clientID, issuer string
	port             int
	timeout          time.Duration
}

// oauthSecretVar is the environment variable with the client secret of --client-id. All users could see a flag.
const oauthSecretVar = "KITBAG_OAUTH_SECRET"

// mcpLoginCommand is "kitbag mcp login", the only command that starts a login.
func mcpLoginCommand() *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:   "login [flags] SERVER",
		Short: "Log in to a server",
		Long: `Print the address of the page on which to log in to a server, wait for the
browser's redirect to a port of this machine, and store the tokens in the user's
configuration directory, in files that only the user can read. From then on all
commands use and renew the tokens. An earlier login is deleted first.

For a server without client registration, register a client by hand, with the
redirect URI http://127.0.0.1:PORT/callback. Give its --client-id and --port, and
its secret, if any, in $` + oauthSecretVar + `.`,
		Example: `  kitbag mcp login github`,
		Args:    between(1, 1, "SERVER"),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.login(cmd, args[0]) },
	}
	fl := cmd.Flags()
	f.registerFiles(cmd)
	fl.StringVar(&f.clientID, "client-id", "", "the `ID` of a client registered by hand")
	fl.StringVar(&f.issuer, "issuer", "", "the `URL` of the authorization server that --client-id is for (default: the server's)")
	fl.IntVar(&f.port, "port", 0, "the port of the browser's redirect; 0 for any")
	fl.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait for the login")
	return cmd
}

func mcpLogoutCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "logout [flags] SERVER",
		Short: "Delete the login to a server",
		Long: `Delete the tokens for a server, and the registered client. The server is not
notified: to end the login there, use the server's own pages.`,
		Example: "  kitbag mcp logout github",
		Args:    between(1, 1, "SERVER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := f.findServer(args[0])
			if err != nil {
				return err
			}
			oauth, err := storedLogins()
			if err != nil {
				return err
			}
			web, ok := cfg.Transport.(mcpclient.HTTP)
			if !ok || !oauth.LoggedIn(web.URL) {
				fmt.Fprintf(cmd.ErrOrStderr(), "no login to %s is stored\n", plain(cfg.Name))
				return nil
			}
			return oauth.Logout(web.URL)
		},
	}
	f.registerFiles(cmd)
	return cmd
}

// login logs in by connecting: the server's answer says whether it requires a login, and at which authorization server.
func (f *loginFlags) login(cmd *cobra.Command, name string) error {
	cfg, err := f.findServer(name)
	if err != nil {
		return err
	}
	web, ok := cfg.Transport.(mcpclient.HTTP)
	if !ok {
		return fmt.Errorf("the MCP server %q is started by a command; only servers with a url need a login", name)
	}
	oauth, err := storedLogins()
	if err != nil {
		return err
	}
	browser, err := listenForBrowser(cmd.Context(), f.port)
	if err != nil {
		return err
	}
	defer browser.close()
	loginRequired := false
	oauth.ClientID, oauth.ClientSecret, oauth.Issuer, oauth.RedirectURL = f.clientID, os.Getenv(oauthSecretVar), f.issuer, browser.url
	oauth.Authorize = func(ctx context.Context, page string) (url.Values, error) {
		loginRequired = true
		return browser.wait(ctx, page, cmd.ErrOrStderr())
	}
	// An old login, perhaps of another user, would be used instead of a new one.
	if err := oauth.EndLogin(web.URL); err != nil {
		return err
	}
	web.OAuth, cfg.Options.Timeouts.Start = oauth, f.timeout
	cfg.Transport = web
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Tools(cmd.Context()); err != nil {
		return err
	}
	if !loginRequired {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s works without a login\n", plain(name))
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "logged in to %s; the tokens are in %s\n", plain(name), oauth.Dir)
	return nil
}

// A browserPort receives the browser's redirect after a login, on this machine only.
type browserPort struct {
	url       string
	server    *http.Server
	states    chan string     // has the state parameter of the expected redirect, if any is expected
	redirects chan url.Values // gets the parameters of the redirect
}

// listenForBrowser opens the port, or any free port for 0. The address of the login page contains the port, so the page
// can only be shown afterwards.
func listenForBrowser(ctx context.Context, port int) (*browserPort, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	b := &browserPort{url: "http://" + l.Addr().String() + "/callback", states: make(chan string, 1), redirects: make(chan url.Values, 1)}
	// Any program on the machine can connect, so limit time and memory.
	b.server = &http.Server{Handler: http.HandlerFunc(b.callback), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() { _ = b.server.Serve(l) }() // close ends it
	return b, nil
}

func (b *browserPort) close() { _ = b.server.Close() }

// callback handles a request to the port, which any program on the machine and any page in the browser can make: it
// accepts one request with the expected state.
func (b *browserPort) callback(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if r.Method != http.MethodGet || r.URL.Path != "/callback" {
		http.NotFound(w, r)
		return
	}
	select {
	case state := <-b.states:
		if state == "" || q.Get("state") != state { // a request without a state must not match a login page without one
			b.states <- state // still expected
			http.Error(w, "This is not the login that kitbag waits for.", http.StatusBadRequest)
			return
		}
	default:
		http.Error(w, "kitbag is not waiting for a login.", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "You can close this page and return to kitbag.")
	b.redirects <- q
}

// wait shows the address of the page, and returns the parameters of the redirect.
func (b *browserPort) wait(ctx context.Context, page string, out io.Writer) (url.Values, error) {
	pageURL, err := url.Parse(page)
	if err != nil {
		return nil, err
	}
	b.states <- pageURL.Query().Get("state") // before the page is shown, since the redirect may follow at once
	fmt.Fprintf(out, "log in at %s by opening this page in a browser:\n\n  %s\n\n", plainLine(pageURL.Host), plainLine(page))
	select {
	case q := <-b.redirects:
		return q, nil
	case <-ctx.Done():
		select {
		case <-b.states: // reject a redirect that comes too late
		default:
		}
		return nil, fmt.Errorf("not logged in: %w", context.Cause(ctx))
	}
}
