package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/template"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/builtin/pdf"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

//go:embed system.md
var defaultSystem string

// defaultPrompt has the default system prompt.
var defaultPrompt = sync.OnceValue(func() *template.Template { return template.Must(template.New("system").Parse(defaultSystem)) })

// A kit is an agent with its toolkit.
type kit struct {
	agent   *agent.Agent
	toolkit *toolkit.Toolkit
	policy  permission.Policy
	close   func() error // ends the MCP servers
}

// kit makes the agent that the flags describe. The runner's log gets warnings about unusable skills and
// servers, and its prompt asks the servers' questions.
func (f *agentFlags) kit(ctx context.Context, policy permission.Policy, s *conversation, r *runner) (_ *kit, err error) {
	m, err := f.openModel()
	if err != nil {
		return nil, err
	}
	system, err := f.systemPrompt(policy.Dirs[0], policy.Mode)
	if err != nil {
		return nil, err
	}
	// Results that are too long for the model are cut and stored in files. Their directory is not a working
	// directory, so only ReadResult can read them without approval.
	results, removeResults, err := s.results()
	if err != nil {
		return nil, err
	}
	readResult, err := agent.ReadResult(results)
	if err != nil {
		return nil, errors.Join(err, removeResults())
	}
	tk, closeServers, err := f.toolkit(policy.Dirs, hosting{elicit: r.prompt != nil, sample: true, policy: &policy}, r.log, readResult)
	if err != nil {
		return nil, errors.Join(err, removeResults())
	}
	k := &kit{toolkit: tk, policy: policy, close: func() error { return errors.Join(closeServers(), removeResults()) }}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	// The first view finds unusable tools before a model call costs money. It starts only the servers of groups
	// that the session has open.
	v, err := tk.View(ctx, &s.Scope)
	if err != nil {
		return nil, err
	}
	showSkipped(r.log, v)
	if err := f.sandbox().confines(); err == nil {
		r.painter.confined = &policy
	} else if policy.Mode == permission.ModeSandboxed {
		fmt.Fprintf(r.log, "! mode sandboxed asks like accept-edits, as no command is confined: %s\n", plainLine(err.Error()))
	}
	cfg := agent.Config{Model: m, Toolkit: tk, Instructions: system, Policy: policy, Save: s.save,
		Limits: agent.Limits{Steps: f.maxSteps, Cost: f.maxCost}, Window: agent.Window{Tokens: f.window, Results: results}}
	if r.spent.price, err = f.useTable(&cfg, f.names()...); err != nil {
		return nil, err
	}
	if r.prompt != nil {
		cfg.Elicit = r.prompt.elicit
	}
	if !f.noRedact {
		if cfg.Redact, err = redactor(); err != nil {
			return nil, err
		}
	}
	k.agent, err = agent.New(cfg)
	return k, err
}

// redactor returns a redactor for what is saved and shown, which removes what looks like a secret, and the
// models' keys. A key shorter than six characters is a placeholder for a local server, and would match ordinary
// text.
func redactor() (*redact.Redactor, error) {
	rules := redact.Rules()
	for _, key := range modelKeys() {
		if len(key) >= 6 {
			rules = append(rules, redact.Literal("model-key", key))
		}
	}
	return redact.New(rules...)
}

// showSkipped prints which skills and servers cannot be used.
func showSkipped(log io.Writer, v *toolkit.View) {
	for _, s := range v.Skipped() {
		what := strings.Trim(s.Source+" "+s.Tool, " ")
		fmt.Fprintf(log, "! left out: %s: %s\n", plainLine(what), indented(s.Reason))
	}
}

// maxOutput is how much of a command's output is stored, in characters. The model gets both ends of a longer
// output, and reads the rest with read_result.
const maxOutput = 1 << 20

// toolkit makes the toolkit that the flags describe: the built-in tools and the skills, which are always
// active, and the groups of each MCP server. It reports unusable servers on log.
func (f *toolFlags) toolkit(dirs []string, h hosting, log io.Writer, more ...tool.Tool) (_ *toolkit.Toolkit, closeAll func() error, err error) {
	local, err := f.sandbox().local(dirs)
	if err != nil {
		return nil, nil, err
	}
	tools, err := builtin.New(builtin.Config{Dirs: dirs, Backend: local, Trusted: f.trustedDirs, Secrets: modelKeys(),
		MaxOutput: maxOutput, PDF: pdf.Reader{}})
	if err != nil {
		return nil, nil, err
	}
	cfg := toolkit.Config{Basic: toolkit.Group{Tools: append(tools, more...)}, Control: toolkit.ResetTools(&toolkit.ResetOptions{Cached: true})}
	if cfg.Basic.Skills, err = f.skillLoaders(); err != nil {
		return nil, nil, err
	}
	h.sandbox = f.sandbox()
	s, err := openServers(f.serverFiles(), dirs, h, f.grouping(), log)
	if err != nil {
		return nil, nil, err
	}
	cfg.Groups = s.groups
	tk, err := toolkit.New(cfg)
	if err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	for _, c := range s.clients {
		c.OnChange(tk.Refresh) // list the tools again before the next step
	}
	return tk, s.close, nil
}

// grouping returns the groups of the configurations.
func (f *toolFlags) grouping() grouping {
	if f.more == nil {
		return grouping{}
	}
	return f.more.grouping
}

// sandbox returns the sandbox settings of the configurations.
func (f *toolFlags) sandbox() sandboxSettings {
	if f.more == nil {
		return sandboxSettings{}
	}
	return f.more.sandbox
}

// systemPrompt returns the text of --system, or the default for dir and mode, and the instructions of the project.
func (f *agentFlags) systemPrompt(dir string, mode permission.Mode) (string, error) {
	if f.system == "" {
		var b strings.Builder
		err := defaultPrompt().Execute(&b, map[string]string{"Dir": dir, "Mode": string(cmp.Or(mode, permission.ModeDefault))})
		return f.withGuides(strings.TrimSpace(b.String())), err
	}
	data, err := os.ReadFile(f.system)
	if err != nil {
		return "", fmt.Errorf("--system: %w", err)
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("--system: %s is not UTF-8; save it as UTF-8", f.system)
	}
	return f.withGuides(string(data)), nil
}

// serverFiles returns the files of --mcp and those configurations that --mcp does not name too, which would
// duplicate their servers.
func (f *toolFlags) serverFiles() []serverFile {
	files := serverFiles(f.mcp)
	if f.more == nil {
		return files
	}
	for _, s := range f.more.servers {
		if !slices.ContainsFunc(f.mcp, func(path string) bool {
			abs, err := filepath.Abs(path)
			return err == nil && abs == s.path
		}) {
			files = append(files, s)
		}
	}
	return files
}

// skillLoaders returns loaders for the folders of --skills, or else for those of the configurations.
func (f *toolFlags) skillLoaders() ([]skill.Loader, error) {
	var loaders []skill.Loader
	for _, d := range f.skills {
		abs, err := existingDir(d)
		if err != nil {
			return nil, usage("--skills %s: %w", d, err)
		}
		loaders = append(loaders, skill.In(abs))
	}
	if len(f.skills) > 0 || f.more == nil {
		return loaders, nil
	}
	for _, d := range slices.Concat(f.more.found, f.more.skills) {
		loaders = append(loaders, skill.In(d))
	}
	return loaders, nil
}

// currentDir returns the current directory, which may have been removed.
func currentDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("the current directory: %w; change to one that exists", err)
	}
	return dir, nil
}

// existingDir returns d as an absolute path, since tools and rules compare absolute paths.
func existingDir(d string) (string, error) {
	abs, err := filepath.Abs(d)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", errors.New("not a directory")
	}
	return abs, nil
}
