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
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var (
	//go:embed system.md
	defaultSystem string
	//go:embed modes.txt
	modeMeanings string // a line for each mode: "NAME: what it means"
)

// A kit is an agent with its toolkit.
type kit struct {
	agent   *agent.Agent
	toolkit *toolkit.Toolkit
	policy  permission.Policy
	close   func() error // ends the MCP servers, and removes temporary tool results
}

// newKit makes the agent that the flags describe. It prints warnings on r.log, and asks the servers' questions with r.prompt.
func (f *agentFlags) newKit(ctx context.Context, policy permission.Policy, s *conversation, r *runner) (_ *kit, err error) {
	m, err := f.openModel(func(text string) { fmt.Fprintln(r.log, r.painter.paint(yellow, "! "+plainLine(text))) })
	if err != nil {
		return nil, err
	}
	system, err := f.systemPrompt(policy.Dirs[0], policy.Mode)
	if err != nil {
		return nil, err
	}
	// Results that are too long for the model are cut and stored in files. Their directory is not a working
	// directory, so only ReadResult can read them without approval.
	results, removeResults, err := s.resultDir()
	if err != nil {
		return nil, err
	}
	readResult, err := agent.ReadResult(results)
	if err != nil {
		return nil, errors.Join(err, removeResults())
	}
	tk, closeServers, err := f.newToolkit(policy.Dirs, serverOptions{elicit: r.prompt != nil, sample: true, policy: &policy}, r.log, readResult)
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
	showSkipped(r.log, v.Skipped())
	r.painter.dirs = policy.Dirs
	if err := f.config.sandbox.canConfine(); err != nil && policy.Mode == permission.ModeSandboxed {
		fmt.Fprintf(r.log, "! mode sandboxed asks like accept-edits, as no command is confined: %s\n", plainLine(err.Error()))
	}
	cfg := agent.Config{Model: m, Toolkit: tk, Instructions: system, Policy: policy, Save: s.save(),
		Limits: agent.Limits{Steps: f.maxSteps, Cost: f.maxCost}, Window: agent.Window{Tokens: f.window, Results: results}}
	if r.spent.price, err = f.applyCatalog(&cfg); err != nil {
		return nil, err
	}
	if r.prompt != nil {
		cfg.Elicit = r.prompt.elicit
	}
	if !f.noRedact {
		if cfg.Redact, err = newRedactor(); err != nil {
			return nil, err
		}
	}
	k.agent, err = agent.New(cfg)
	return k, err
}

// newRedactor returns a redactor that removes what looks like a secret, and the models' keys. A key shorter than six
// characters is a placeholder for a local server, and would match ordinary text.
func newRedactor() (*redact.Redactor, error) {
	rules := redact.Rules()
	for _, key := range modelKeys() {
		if len(key) >= 6 {
			rules = append(rules, redact.Literal("model-key", key))
		}
	}
	return redact.New(rules...)
}

// showSkipped prints which skills and servers cannot be used.
func showSkipped(out io.Writer, skipped []toolkit.Skipped) {
	for _, s := range skipped {
		what := strings.Trim(s.Source+" "+s.Tool, " ")
		fmt.Fprintf(out, "! skipped: %s: %s\n", plainLine(what), indented(s.Reason))
	}
}

// maxOutput is how much of a command's output is stored, in characters. The model gets the beginning and the end of a
// long output, and reads the rest with read_result.
const maxOutput = 1 << 20

// newToolkit makes the toolkit that the flags describe: the built-in tools, readResult and the skills, which are always
// active, and the groups of each MCP server. It prints on log which servers are unusable.
func (f *toolFlags) newToolkit(dirs []string, opts serverOptions, log io.Writer, readResult tool.Tool) (_ *toolkit.Toolkit, closeServers func() error, err error) {
	local, err := f.config.sandbox.backend(dirs)
	if err != nil {
		return nil, nil, err
	}
	tools, err := builtin.New(builtin.Config{Dirs: dirs, Backend: local, Trusted: f.trustedDirs, Secrets: modelKeys(),
		MaxOutput: maxOutput, PDF: pdfReader})
	if err != nil {
		return nil, nil, err
	}
	cfg := toolkit.Config{Basic: toolkit.Group{Tools: append(tools, readResult)},
		Control: toolkit.ResetTools(&toolkit.ResetOptions{Cached: true})} // the endpoints cache the beginning of requests
	if cfg.Basic.Skills, err = f.skillLoaders(); err != nil {
		return nil, nil, err
	}
	opts.sandbox = f.config.sandbox
	s, err := openServers(f.serverFiles(), dirs, opts, f.config.grouping, log)
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

// systemPrompt returns the text of --system, or the default text for dir and mode, with the guides of the project.
func (f *agentFlags) systemPrompt(dir string, mode permission.Mode) (string, error) {
	if f.system == "" {
		prefix := string(cmp.Or(mode, permission.ModeDefault)) + ": "
		meaning := prefix
		for line := range strings.Lines(modeMeanings) {
			if strings.HasPrefix(line, prefix) {
				meaning = strings.TrimSpace(line)
			}
		}
		text := strings.NewReplacer("{{dir}}", dir, "{{mode}}", meaning).Replace(defaultSystem)
		return f.withGuides(strings.TrimSpace(text)), nil
	}
	data, err := os.ReadFile(f.system)
	if err != nil {
		return "", fmt.Errorf("--system, or system in kitbag.json: %w", err)
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("--system, or system in kitbag.json: %s is not UTF-8; save it as UTF-8", f.system)
	}
	return f.withGuides(string(data)), nil
}

// serverFiles returns the files of --mcp, and the configurations with servers. It skips a configuration that --mcp names,
// since the servers would be duplicates.
func (f *toolFlags) serverFiles() []serverFile {
	files := wholeFiles(f.mcp)
	for _, s := range f.config.servers {
		if !slices.ContainsFunc(f.mcp, func(path string) bool {
			abs, err := filepath.Abs(path)
			return err == nil && abs == s.path
		}) {
			files = append(files, s)
		}
	}
	return files
}

// skillLoaders returns loaders for the folders of --skills, or else for the default folders and the configurations' folders.
func (f *toolFlags) skillLoaders() ([]skill.Loader, error) {
	var loaders []skill.Loader
	for _, d := range f.skills {
		abs, err := existingDir(d)
		if err != nil {
			return nil, usage("--skills %s: %w", d, err)
		}
		loaders = append(loaders, skill.In(abs))
	}
	if len(f.skills) > 0 {
		return loaders, nil
	}
	for _, d := range slices.Concat(f.config.skillFolders, f.config.skills) {
		loaders = append(loaders, skill.In(d))
	}
	return loaders, nil
}

// currentDir returns the current directory. It fails if the directory has been removed.
func currentDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("the current directory: %w; change to one that exists", err)
	}
	return dir, nil
}

// existingDir returns the absolute path of d, which must be a directory. Tools and rules compare absolute paths.
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
