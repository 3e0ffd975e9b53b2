package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The states of a check.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkFailed  = "failed"
)

// A check is the result of checking a part of the set-up.
type check struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

type doctorFlags struct {
	json bool
	agentFlags
}

func doctorCommand() *cobra.Command {
	f := &doctorFlags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the set-up here, and say what to do",
		Long: `Check what "kitbag run" would use in the current directory: the configuration, the
endpoint and the model, whether it calls tools, its context window, the sandbox, and
the MCP servers. Each check that is not ok says what to do.

The model, and each of --fallback, is asked twice, which costs a few hundred tokens, and
the MCP servers are started. Untrusted parts of the directory's kitbag.json are skipped, with a warning;
--trust includes them.

The exit code is 1 if a check has failed; a warning is not a failure.`,
		Example: "  kitbag doctor\n  kitbag doctor --json --trust",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	f.register(cmd)
	return cmd
}

func (f *doctorFlags) run(cmd *cobra.Command) error {
	checks := f.runChecks(cmd)
	out := cmd.OutOrStdout()
	if f.json {
		if err := writeJSON(out, checks); err != nil {
			return err
		}
	}
	failed := false
	for _, c := range checks {
		failed = failed || c.State == checkFailed
		if !f.json {
			c.print(out)
		}
	}
	if failed {
		return &exit{code: exitError}
	}
	return nil
}

func (c check) print(w io.Writer) {
	fmt.Fprintf(w, "%-8s %s: %s\n", c.State, plainLine(c.Name), indented(c.Detail))
	if c.Remedy != "" {
		fmt.Fprintf(w, "         → %s\n", indented(c.Remedy))
	}
}

// runChecks makes all checks. It stops at an invalid configuration, since "kitbag run" would not start with it.
func (f *doctorFlags) runChecks(cmd *cobra.Command) []check {
	warnSkills := len(f.skills) == 0 // otherwise a run uses the folders of --skills instead of the project's
	var err error
	f.config, err = untrustedConfig(f.trust, warnSkills, cmd.ErrOrStderr())
	if err != nil {
		return []check{{"configuration", checkFailed, err.Error(), "correct the file"}}
	}
	f.applyConfig(cmd)
	policy, err := f.policy()
	if err != nil {
		return []check{{"configuration", checkFailed, err.Error(), "correct the file or the flag"}}
	}
	checks := []check{{"configuration", checkOK, fmt.Sprintf("mode %s, %d rules", f.mode, len(policy.Rules)), ""}}
	checks = append(checks, f.checkModels(cmd.Context())...)
	checks = append(checks, f.checkSandbox(policy.Mode), f.checkSessions(cmd.Context()))
	return append(checks, f.checkServers(cmd, policy.Dirs)...)
}

// checkTimeout limits the time for all answers of one model.
const checkTimeout = time.Minute

// checkModels checks the model and the fallbacks, up to the first that cannot be opened, and their context window.
func (f *doctorFlags) checkModels(ctx context.Context) (checks []check) {
	for i, name := range f.names() {
		prefix := ""
		if i > 0 {
			prefix = "fallback " + name + ": "
		}
		m, err := f.openNamed(name)
		if err != nil {
			return append(checks, check{prefix + "model", checkFailed, err.Error(),
				"set KITBAG_MODEL, and OPENAI_API_KEY with OPENAI_BASE_URL, or for Claude models ANTHROPIC_API_KEY"})
		}
		for _, c := range f.checkModel(ctx, m) {
			c.Name = prefix + c.Name
			checks = append(checks, c)
		}
	}
	return append(checks, f.checkWindow())
}

// checkModel checks that a model answers, and that it calls a tool when it is asked to.
func (f *doctorFlags) checkModel(ctx context.Context, m model.Model) []check {
	called := false
	ping, err := tool.New("ping", "Returns pong.", func(context.Context, struct{}) (string, error) {
		called = true
		return "pong", nil
	}, tool.Options{ReadOnly: true})
	if err != nil {
		return []check{{"model", checkFailed, err.Error(), ""}}
	}
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(ping), Policy: permission.Policy{TrustReadOnly: true},
		Limits: agent.Limits{Steps: 3, Time: checkTimeout}, Retry: middleware.RetryConfig{Retries: -1}}) // no retries: report the first error
	if err != nil {
		return []check{{"model", checkFailed, err.Error(), ""}}
	}
	if _, err := a.Reply(ctx, new(agent.State), agent.Say("Call the tool ping once. When it has answered, say ok.")); err != nil {
		remedy := "see the server's message"
		if e, ok := errors.AsType[*model.Error](err); ok {
			remedy = cmp.Or(f.remedy(e), remedy)
		}
		return []check{{"model", checkFailed, err.Error(), remedy}}
	}
	tools := check{"tools", checkOK, "the model has called a tool", ""}
	if !called {
		tools = check{"tools", checkWarning, "the model has not called the tool that it was asked to call", "use a model that calls tools, or another protocol: KITBAG_API=chat, responses or anthropic"}
	}
	name := ""
	if n, ok := m.(model.Named); ok {
		name = n.Name()
	}
	return []check{{"model", checkOK, name + " has answered", ""}, tools}
}

// checkWindow reports the size of the context window that a run would assume.
func (f *doctorFlags) checkWindow() check {
	cfg := agent.Config{Window: agent.Window{Tokens: f.window}}
	if _, err := f.applyCatalog(&cfg); err != nil {
		return check{"window", checkFailed, err.Error(), "correct the file that kitbag.json names under models"}
	}
	if cfg.Window.Tokens == 0 {
		return check{"window", checkWarning, fmt.Sprintf("the context window of %s is not known; 128000 tokens are assumed", strings.Join(f.names(), ", ")),
			`set "window" in kitbag.json, or --window, to the model's context window`}
	}
	return check{"window", checkOK, fmt.Sprintf("%d tokens", cfg.Window.Tokens), ""}
}

func (f *doctorFlags) checkSandbox(mode permission.Mode) check {
	err := f.config.sandbox.canConfine()
	switch {
	case err == nil:
		return check{"sandbox", checkOK, "commands run confined", ""}
	case mode == permission.ModeSandboxed:
		return check{"sandbox", checkWarning, "mode sandboxed asks like accept-edits: " + err.Error(), "see kitbag sandbox status"}
	}
	return check{"sandbox", checkWarning, "no command is confined: " + err.Error(), "see kitbag sandbox status"}
}

func (f *doctorFlags) checkServers(cmd *cobra.Command, dirs []string) (checks []check) {
	configs, broken, err := loadConfigs(f.serverFiles())
	if err != nil {
		return []check{{"MCP servers", checkFailed, err.Error(), "correct the file"}}
	}
	for _, e := range broken {
		checks = append(checks, check{"MCP server " + e.Server, checkFailed, e.Error(), "correct the server's entry in mcpServers"})
	}
	unconfined := map[string]bool{} // servers that are commands whose entries do not ask for a sandbox
	for i, cfg := range configs {
		command, ok := cfg.Transport.(mcpclient.Command)
		unconfined[cfg.Name] = ok && command.Sandbox.Profile == ""
		configs[i] = withSandbox(cfg, f.config.sandbox, dirs)
	}
	for _, r := range queryAll(cmd, configs, listServer) {
		c := check{"MCP server " + r.Name, checkOK, fmt.Sprintf("%d tools", len(r.Tools)), ""}
		switch {
		case r.State != stateReady:
			c.State, c.Detail, c.Remedy = checkFailed, r.Error, "start the server by hand to see its messages: kitbag mcp status"
		case unconfined[r.Name] && f.config.sandbox.canConfine() == nil:
			c.Remedy = `the server has all your permissions; write "sandbox": "read" or "work" in its entry to confine it`
		}
		checks = append(checks, c)
	}
	return checks
}
