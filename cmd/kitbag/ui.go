package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/internal/loopback"
	"github.com/kitbag-go/kitbag/permission"
)

type uiFlags struct {
	store, addr string
	open        bool
	agentFlags  // for conversations that continue after an answer
}

func uiCommand() *cobra.Command {
	f := &uiFlags{}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show sessions in a browser, and answer their questions",
		Long: `Serve a page that shows sessions: the questions that wait, and what each agent did,
step by step, live; and your MCP gateways that run, with the tools that their servers
have changed. Each session can be exported as JSON Lines, as a page, or as a Go test that
repeats it. The first line on standard output is the URL, with a secret token. Nothing is
fetched from other servers.

Without --store these are the conversations of "kitbag chat" in the current directory.
The store is a directory (of such conversations, or of a program that uses
session.Dir), a session of "kitbag run --session", a SQLite database, or the
URL of a Postgres database (postgres://…).

An answer to a question of "kitbag chat" or "kitbag run" lets the conversation
continue here, with the model, rules and servers that "kitbag run" would use in the
current directory; the flags are the same. The sessions of other programs get the
answer in their inbox, from which that program takes it. A session that is not sealed
with your key, such as one of an older version, is only shown, unless you trust it with
--trust-session.`,
		Example: `  kitbag ui --open
  kitbag ui --store s.jsonl
  kitbag ui --store sessions.db --addr 127.0.0.1:8080`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.store, "store", "", "show the sessions in `DIR|FILE|URL`")
	fl.StringVar(&f.addr, "addr", "127.0.0.1:0", "listen on `HOST:PORT`; port 0 is any free one")
	fl.BoolVar(&f.open, "open", false, "open the page in the browser")
	f.register(cmd)
	return cmd
}

func (f *uiFlags) run(cmd *cobra.Command) (err error) {
	ctx, log := cmd.Context(), cmd.ErrOrStderr()
	host, _, err := net.SplitHostPort(f.addr)
	if err != nil {
		return usage("--addr %q: write HOST:PORT, such as 127.0.0.1:8080", f.addr)
	}
	if f.session != "" {
		return usage("--session is a flag of kitbag run; use --store %s", f.session)
	}
	store, closeStore, err := openStore(ctx, f.store, f.trustSession)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	opts, err := f.explainOptions(cmd)
	if err != nil {
		return err
	}
	if own, ok := store.(*ownStore); ok {
		opts.Resume = func(ctx context.Context, id string, _ inspect.Variant) error { // withCopySettings reads the Variant from the State
			return f.resume(ctx, cmd, own.path(id))
		}
		opts.Note = func(in session.Info) string {
			if in.Labels[sealLabel] != "" {
				return "The session is not sealed with your key: an older version wrote it, or another user, or it was changed since. It is only shown. Read it; if you trust its conversation and its rules, start kitbag ui with --trust-session."
			}
			return "The session is sealed with your key, which kitbag keeps for you; copies are sealed with it, too, and exports are not. Recognized secrets were removed before it was stored, except with --no-redact: copies and exports have marks in their place."
		}
		opts.Keep = func(ctx context.Context, id string, rules []permission.Rule) error {
			if err := own.checkSeal(ctx, id); err != nil {
				return err
			}
			return f.keepRules(ctx, silentPrompt(), rules)
		}
	}
	opts.Gateways, opts.Pins, opts.Accept = runningGateways, changedPins, acceptPin
	if !loopback.Host(host) {
		fmt.Fprintf(log, "! %s can be reached from other machines, and the connection is not encrypted: anyone who sees the URL can read and answer everything\n", plainLine(f.addr))
		if name, err := os.Hostname(); err == nil {
			opts.Hosts = append(opts.Hosts, name, host)
		}
	}
	h, err := inspect.New(store, opts)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		return fmt.Errorf("--addr: %w; choose another address or port", err)
	}
	// The browser sends a cookie to all ports of this machine, but only for its path. So the path is random as well.
	prefix := "/" + rand.Text()[:12]
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, h))
	url := fmt.Sprintf("http://%s%s/?token=%s", l.Addr(), prefix, h.Token())
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), url); err != nil {
		return errors.Join(err, l.Close())
	}
	if f.open {
		// Other users see the arguments of the browser, so it gets a path that leads to the URL once.
		oncePath, used := prefix+"/open/"+rand.Text(), new(atomic.Bool)
		mux.HandleFunc("GET "+oncePath, func(w http.ResponseWriter, r *http.Request) {
			if used.Swap(true) {
				http.Error(w, "This address works once. Open the URL that was printed.", http.StatusGone)
				return
			}
			http.Redirect(w, r, url, http.StatusSeeOther)
		})
		if err := openBrowser(fmt.Sprintf("http://%s%s", l.Addr(), oncePath)); err != nil {
			fmt.Fprintf(log, "! the browser could not be opened: %s\n", plainLine(err.Error()))
		}
	}
	return serveUntil(ctx, l, mux)
}

// explainOptions returns options for explaining decisions with the settings of the current directory. Calls of tools
// that are not built in are judged by their names only.
func (f *uiFlags) explainOptions(cmd *cobra.Command) (inspect.Options, error) {
	flags := f.agentFlags
	if err := flags.configure(cmd.Context(), cmd, nil); err != nil {
		return inspect.Options{}, err
	}
	p, err := flags.policy()
	if err != nil {
		return inspect.Options{}, err
	}
	tools := &builtins{sandbox: flags.config.sandbox}
	var mu sync.Mutex // guards tools
	return inspect.Options{Policy: p, Call: func(_, name string, input json.RawMessage) *permission.Call {
		mu.Lock()
		defer mu.Unlock()
		return tools.describe(name, input, p.Dirs[0])
	}}, nil
}

// serveUntil serves until ctx ends, which also ends the requests for live updates.
func serveUntil(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if server.Shutdown(shutdownCtx) != nil {
		_ = server.Close()
	}
	<-done
	return nil
}

// openBrowser opens a URL with the system's program for that. The URL must be kitbag's: others could start programs.
func openBrowser(url string) error {
	program, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	cmd := exec.Command(program, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// silentPrompt returns a prompt whose input has ended, since there is no terminal.
func silentPrompt() *prompt {
	p := &prompt{out: io.Discard, lines: make(chan string)}
	close(p.lines)
	return p
}

// resume continues a conversation of "kitbag run" or "kitbag chat" with the inputs that were sent to it. If that is not
// possible, such as without a key for the model, the inputs stay.
func (f *uiFlags) resume(ctx context.Context, cmd *cobra.Command, path string) error {
	flags := f.agentFlags
	flags.session, flags.trustSession = path, false // what is trusted was sealed when the page was started
	r := &runner{log: io.Discard, painter: newPainter(io.Discard), show: func(event.Event) error { return nil }}
	if err := flags.configure(ctx, cmd, nil); err != nil {
		return err
	}
	err := flags.withAgent(ctx, r, func(k *kit, s *conversation) error {
		return r.run(ctx, k.agent, s, nil)
	})
	if errors.Is(err, session.ErrConflict) {
		return fmt.Errorf("another kitbag process has session %s open; answer there, or end that process", filepath.Base(path))
	}
	if e, ok := errors.AsType[*exit](err); ok {
		err = e.err // the page shows its questions or its limit
	}
	return err
}
