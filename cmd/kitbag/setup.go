package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

//go:embed system.md
var defaultSystem string

// agent makes the agent that the flags describe. The function it returns ends
// the MCP servers. What cannot be used of skills and servers is told on log.
func (f *runFlags) agent(ctx context.Context, policy permission.Policy, s *conversation, log io.Writer) (_ *agent.Agent, closeAll func() error, err error) {
	m, err := f.openModel()
	if err != nil {
		return nil, nil, err
	}
	system, err := f.systemPrompt(policy.Dirs[0])
	if err != nil {
		return nil, nil, err
	}
	results, removeResults, err := s.results()
	if err != nil {
		return nil, nil, err
	}
	readResult, err := agent.ReadResult(results)
	if err != nil {
		return nil, nil, errors.Join(err, removeResults())
	}
	tk, closeServers, err := f.toolkit(policy.Dirs, readResult)
	if err != nil {
		return nil, nil, errors.Join(err, removeResults())
	}
	closeAll = func() error { return errors.Join(closeServers(), removeResults()) }
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	v, err := tk.View(ctx, &s.Scope)
	if err != nil {
		return nil, nil, err
	}
	showSkipped(log, v)
	a, err := agent.New(agent.Config{Model: m, Toolkit: tk, Instructions: system, Policy: policy, Save: s.save,
		Limits: agent.Limits{Steps: f.maxSteps}, Context: agent.Context{Results: results}})
	return a, closeAll, err
}

// showSkipped says what of skills and servers cannot be used.
func showSkipped(log io.Writer, v *toolkit.View) {
	for _, s := range v.Skipped() {
		what := strings.Trim(s.Source+" "+s.Tool, " ")
		fmt.Fprintf(log, "! left out: %s: %s\n", plain(what), plain(s.Reason))
	}
}

// toolkit makes the toolkit that the flags describe: the built-in tools and the
// skills always there, and a group for each MCP server.
func (f *toolFlags) toolkit(dirs []string, more ...tool.Tool) (_ *toolkit.Toolkit, closeAll func() error, err error) {
	tools, err := builtin.New(builtin.Config{Dirs: dirs})
	if err != nil {
		return nil, nil, err
	}
	cfg := toolkit.Config{Basic: toolkit.Group{Tools: append(tools, more...)}, Control: toolkit.ResetTools()}
	if cfg.Basic.Skills, err = f.skillLoaders(dirs[0]); err != nil {
		return nil, nil, err
	}
	servers, err := loadServers(f.mcp)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range servers {
		cfg.Groups = append(cfg.Groups, toolkit.Group{
			Name: c.Name, Description: fmt.Sprintf("The tools of the MCP server %q.", c.Name), Sources: []tool.Source{c.Client}})
	}
	tk, err := toolkit.New(cfg)
	if err != nil {
		return nil, nil, errors.Join(err, closeServers(servers))
	}
	for _, c := range servers {
		c.OnChange(tk.Refresh)
	}
	return tk, func() error { return closeServers(servers) }, nil
}

func (f *runFlags) openModel() (*openai.Model, error) {
	cfg := openai.Config{BaseURL: os.Getenv("OPENAI_BASE_URL"), Key: os.Getenv("OPENAI_API_KEY"), Model: os.Getenv("KITBAG_MODEL")}
	if f.model != "" {
		cfg.Model = f.model
	}
	if f.baseURL != "" {
		cfg.BaseURL = f.baseURL
	}
	return openai.New(cfg)
}

// systemPrompt returns the text of --system, or the default for dir.
func (f *runFlags) systemPrompt(dir string) (string, error) {
	if f.system == "" {
		return fmt.Sprintf(defaultSystem, dir), nil
	}
	data, err := os.ReadFile(f.system)
	if err != nil {
		return "", fmt.Errorf("--system: %w", err)
	}
	return string(data), nil
}

// skillLoaders returns the folders of --skills, or those of the usual ones that
// exist below dir.
func (f *toolFlags) skillLoaders(dir string) ([]skill.Loader, error) {
	var loaders []skill.Loader
	for _, d := range f.skills {
		abs, err := existingDir(d)
		if err != nil {
			return nil, usage("--skills %s: %w", d, err)
		}
		loaders = append(loaders, skill.Folder(abs))
	}
	if len(f.skills) > 0 {
		return loaders, nil
	}
	for _, d := range []string{".agents/skills", ".claude/skills"} {
		if abs, err := existingDir(filepath.Join(dir, d)); err == nil {
			loaders = append(loaders, skill.Folder(abs))
		}
	}
	return loaders, nil
}

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

// server is an MCP server that a file names.
type server struct {
	*mcpclient.Client
	Name string
}

// loadServers makes clients for the servers that the files name. None is
// started yet.
func loadServers(files []string) ([]server, error) {
	var servers []server
	from := map[string]string{}
	for _, file := range files {
		configs, err := mcpclient.Load(file)
		if err != nil {
			return nil, err
		}
		for _, cfg := range configs {
			if other := from[cfg.Name]; other != "" {
				return nil, fmt.Errorf("%s: the MCP server %q is named in %s too; rename one", file, cfg.Name, other)
			}
			from[cfg.Name] = file
			c, err := mcpclient.New(cfg)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			servers = append(servers, server{c, cfg.Name})
		}
	}
	return servers, nil
}

func closeServers(servers []server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
