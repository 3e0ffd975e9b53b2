package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A serverFile names MCP servers.
type serverFile struct {
	path string
	data []byte // the part of the file that applies; nil for the whole file
}

// serverFiles returns a serverFile for each path.
func serverFiles(paths []string) []serverFile {
	var out []serverFile
	for _, p := range paths {
		out = append(out, serverFile{path: p})
	}
	return out
}

// load returns the valid servers of the file, and the errors of the others.
func (s serverFile) load() ([]mcpclient.Server, error) {
	if s.data != nil {
		return mcpclient.Parse(s.path, s.data)
	}
	configs, err := mcpclient.Load(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; create it with servers under mcpServers, or name another file with --mcp FILE", err)
	}
	return configs, err
}

// loadConfigs reads the files of MCP servers, and adds the stored logins. An error of one server does not
// affect the others.
func loadConfigs(files []serverFile) (configs []mcpclient.Server, broken []*mcpclient.LoadError, err error) {
	from := map[string]string{} // prefix of tools → file
	for _, file := range files {
		cs, err := file.load()
		for _, e := range unjoin(err) {
			le, ok := errors.AsType[*mcpclient.LoadError](e)
			if !ok || le.Server == "" {
				return nil, nil, e
			}
			broken = append(broken, le)
		}
		if err := pin(file.path, cs); err != nil {
			return nil, nil, err
		}
		for _, cfg := range cs {
			name := strings.ToLower(groupName(cfg.Name))
			if other, taken := from[name]; taken {
				broken = append(broken, &mcpclient.LoadError{File: file.path, Key: cfg.Name, Server: cfg.Name,
					Err: fmt.Errorf("its tools would have the same names as those of a server in %s; rename one", other)})
				continue
			}
			from[name] = file.path
			configs = append(configs, confined(withLogin(cfg), sandboxSettings{}, nil))
		}
	}
	return configs, broken, nil
}

// unjoin returns the errors that [errors.Join] joined, since they are printed separately.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// warnBroken prints which servers are left out.
func warnBroken(log io.Writer, broken []*mcpclient.LoadError) {
	for _, e := range broken {
		fmt.Fprintf(log, "! left out: the MCP server %q: %s\n", plainLine(e.Server), indented(e.Error()))
	}
}

// hosting says what an agent's servers may request, and how they are confined.
type hosting struct {
	elicit bool // there is a prompt for their questions
	sample bool // there is a model for their requests

	policy *permission.Policy // nil if no tool is called

	sandbox sandboxSettings
}

// confined makes a server whose entry has a sandbox run in it, without access to protected and secret paths in
// dirs, or in the current directory if dirs is nil.
func confined(cfg mcpclient.Server, settings sandboxSettings, dirs []string) mcpclient.Server {
	command, ok := cfg.Transport.(mcpclient.Command)
	if !ok || command.Sandbox.Profile == "" {
		return cfg
	}
	command.Confine = func(cmd *exec.Cmd, s mcpclient.Sandbox) (func() error, error) {
		covered := slices.Concat(dirs, s.Write)
		if dirs == nil {
			cwd, err := currentDir()
			if err != nil {
				return nil, err
			}
			covered = append(covered, cwd)
		}
		spec, err := settings.spec(permission.Profile(s.Profile), covered)
		if err != nil {
			return nil, err
		}
		spec.Write, spec.Network = s.Write, s.Network
		cleanup, err := spec.Command(cmd)
		if err != nil {
			return nil, fmt.Errorf("it cannot be confined as its entry requires: %w", err)
		}
		return func() error { _, err := cleanup(); return err }, nil
	}
	cfg.Transport = command
	return cfg
}

// mcpServers are the MCP servers of an agent. Each is started when one of its groups is opened.
type mcpServers struct {
	clients []*mcpclient.Client
	groups  []toolkit.Group
}

// openServers makes clients for the servers of the files and describes their groups. Servers that request roots
// get dirs.
func openServers(files []serverFile, dirs []string, h hosting, log io.Writer) (*mcpServers, error) {
	configs, broken, err := loadConfigs(files)
	if err != nil {
		return nil, err
	}
	warnBroken(log, broken)
	s := &mcpServers{}
	applyPolicy(h.policy, configs)
	for _, cfg := range configs {
		cfg = confined(cfg, h.sandbox, dirs)
		if cfg.WantsRoots {
			cfg.Options.Roots = dirs
		}
		if h.elicit {
			cfg.Options.Elicitation = mcpclient.ElicitCaller
		}
		if h.sample {
			cfg.Options.Sampling, cfg.Options.Limits.Samples = mcpclient.SampleCaller, -1 // the agent has its own limits
		}
		c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.clients = append(s.clients, c)
		s.groups = append(s.groups, groupsOf(c, loadGroups(cfg))...)
	}
	return s, nil
}

// close ends all servers in parallel, as each may take a while.
func (s *mcpServers) close() error {
	var wg sync.WaitGroup
	errs := make([]error, len(s.clients))
	for i, c := range s.clients {
		wg.Go(func() { errs[i] = c.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// notInNames matches what model APIs reject in the names of fields, such as those of reset_tools.
var notInNames = lazy.Regexp(`[^A-Za-z0-9_-]`)

// groupName makes a toolkit group's name from the name of a server or of its group.
func groupName(s string) string { return notInNames().ReplaceAllString(s[:min(len(s), 48)], "_") }

// groupsOf describes the groups of a server: those of its last connection, and one for the tools that are in
// none of them. A server without a stored list is one group, since listing its groups would start it.
func groupsOf(c *mcpclient.Client, m *groupCache) []toolkit.Group {
	name := groupName(c.Name())
	rest := toolkit.Group{Name: name, Description: fmt.Sprintf("The tools of the MCP server %q.", plain(c.Name())),
		Sources: []tool.Source{&serverSource{c, m, "", nil}}}
	if len(m.Groups) == 0 {
		return []toolkit.Group{rest}
	}
	rename := func(group string) string {
		return name + "." + groupName(strings.TrimPrefix(group, c.Name()+"/"))
	}
	var out []toolkit.Group
	var known []string
	for _, g := range m.Groups {
		tg := toolkit.Group{Name: rename(g.Name), Title: shorten(g.Title, maxLine), Description: shorten(g.Description, maxLine),
			Sources: []tool.Source{&serverSource{c, m, g.Name, nil}}}
		if slices.ContainsFunc(out, func(o toolkit.Group) bool { return o.Name == tg.Name }) {
			continue // its tools are in the group of the rest
		}
		for _, p := range g.Parents {
			tg.Parents = append(tg.Parents, rename(p))
		}
		known = append(known, g.Name)
		out = append(out, tg)
	}
	rest.Description = fmt.Sprintf("The tools of the MCP server %q that are in no other group.", plain(c.Name()))
	rest.Sources = []tool.Source{&serverSource{c, m, "", known}}
	return toolkit.Import(append(out, rest))
}

// maxLine is how much of a server's description of a group is shown, in runes.
const maxLine = 300

// A serverSource is the part of a server in a group; listing its tools starts the server.
type serverSource struct {
	client     *mcpclient.Client
	groupCache *groupCache
	group      string   // the server's name of the group; empty for the rest
	known      []string // only for the rest: the groups that have the other tools
}

// Name is the server's name, for errors.
func (s *serverSource) Name() string { return s.client.Name() }

// Tools connects to the server, which starts it, and returns the tools that are in the group now: the stored
// list may be outdated.
func (s *serverSource) Tools(ctx context.Context) ([]tool.Tool, error) {
	all, err := s.client.Tools(ctx)
	if err != nil {
		return nil, addLoginRemedy(s.client.Name(), err)
	}
	groups, err := s.client.Groups(ctx)
	if err != nil {
		return nil, err
	}
	s.groupCache.store(groups) // for the next run; this run keeps its groups
	in := func(t tool.Tool, names ...string) bool {
		return slices.ContainsFunc(groups, func(g mcpclient.Group) bool {
			return slices.Contains(names, g.Name) && slices.Contains(g.Members(), t.Info().Name)
		})
	}
	return slices.DeleteFunc(slices.Clone(all), func(t tool.Tool) bool {
		if s.group != "" {
			return !in(t, s.group)
		}
		return in(t, s.known...)
	}), nil
}

// startWithLogin is the start timeout of a server with a login.
const startWithLogin = 30 * time.Second
