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

// A serverFile has MCP servers.
type serverFile struct {
	path string
	data []byte // the part of it that applies; nil for the whole file
}

// serverFiles are the files at the paths.
func serverFiles(paths []string) []serverFile {
	var out []serverFile
	for _, p := range paths {
		out = append(out, serverFile{path: p})
	}
	return out
}

// load returns the servers that it could read, and the errors of the others.
func (s serverFile) load() ([]mcpclient.Server, error) {
	if s.data != nil {
		return mcpclient.Parse(s.path, s.data)
	}
	configs, err := mcpclient.Load(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; write one with servers under mcpServers, or give another with --mcp FILE", err)
	}
	return configs, err
}

// loadConfigs reads the files of MCP servers, and adds the stored logins. An error of one server
// does not affect the others.
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

// unjoin returns the errors of [errors.Join], which are printed separately.
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

// hosting says what the servers of an agent may request, and how they are confined.
type hosting struct {
	elicit bool // there is a prompt
	sample bool // there is a model

	policy *permission.Policy // nil if no tool is called

	sandbox sandboxSettings
}

// confined makes a server with a sandbox in its entry run in it, without access to what is
// protected and secret in dirs, or else in the current directory.
func confined(cfg mcpclient.Server, settings sandboxSettings, dirs []string) mcpclient.Server {
	command, ok := cfg.Transport.(mcpclient.Command)
	if !ok || command.Sandbox.Profile == "" {
		return cfg
	}
	command.Confine = func(cmd *exec.Cmd, s mcpclient.Sandbox) (func() error, error) {
		seen := slices.Concat(dirs, s.Write)
		if dirs == nil {
			cwd, err := currentDir()
			if err != nil {
				return nil, err
			}
			seen = append(seen, cwd)
		}
		spec, err := settings.spec(permission.Profile(s.Profile), seen)
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

// openServers makes clients for the servers of the files, with dirs as roots for those that
// request them, and describes their groups.
func openServers(files []serverFile, dirs []string, h hosting, log io.Writer) (*mcpServers, error) {
	configs, broken, err := loadConfigs(files)
	if err != nil {
		return nil, err
	}
	warnBroken(log, broken)
	s := &mcpServers{}
	judged(h.policy, configs)
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
		s.groups = append(s.groups, groupsOf(c, recall(cfg))...)
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

// notInNames matches what model APIs refuse in names of fields, such as those of reset_tools.
var notInNames = lazy.Regexp(`[^A-Za-z0-9_-]`)

// groupName makes a group's name from one of a configuration or a server.
func groupName(s string) string { return notInNames().ReplaceAllString(s[:min(len(s), 48)], "_") }

// groupsOf describes the groups of a server: those of its last connection, and one for the tools
// that are in none of them. A server that was never connected is one group, as listing its groups
// would start it.
func groupsOf(c *mcpclient.Client, m *memory) []toolkit.Group {
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

// A serverSource is the part of a server in a group; it starts the server.
type serverSource struct {
	client *mcpclient.Client
	memory *memory
	group  string   // the server's own name of the group; empty for the rest
	known  []string // with an empty group: the groups with the other tools
}

// Name is the server's name, for errors.
func (s *serverSource) Name() string { return s.client.Name() }

// Tools connects to the server, which starts it, and returns its tools that are in the group now,
// as the memory may be outdated.
func (s *serverSource) Tools(ctx context.Context) ([]tool.Tool, error) {
	all, err := s.client.Tools(ctx)
	if err != nil {
		return nil, wantsLogin(s.client.Name(), err)
	}
	groups, err := s.client.Groups(ctx)
	if err != nil {
		return nil, err
	}
	s.memory.keep(groups) // for the next run; this one keeps the groups it has
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
