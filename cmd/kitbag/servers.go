package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/internal/mcpgroups"
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

// wholeFiles returns server files of which every part applies.
func wholeFiles(paths []string) []serverFile {
	var out []serverFile
	for _, p := range paths {
		out = append(out, serverFile{path: p})
	}
	return out
}

// load returns the valid servers of the file, and a joined error for the invalid ones.
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

// loadConfigs reads the files of MCP servers, and adds the stored logins. A broken server does not affect the others.
func loadConfigs(files []serverFile) (configs []mcpclient.Server, broken []*mcpclient.LoadError, err error) {
	fileByPrefix := map[string]string{} // by the prefix of the names of a server's tools
	for _, file := range files {
		cs, err := file.load()
		for _, e := range unjoin(err) {
			le, ok := errors.AsType[*mcpclient.LoadError](e)
			if !ok || le.Server == "" { // not an error of one server
				return nil, nil, e
			}
			broken = append(broken, le)
		}
		if err := usePins(file.path, cs); err != nil {
			return nil, nil, err
		}
		for _, cfg := range cs {
			prefix := strings.ToLower(strings.ReplaceAll(mcpgroups.GroupName(cfg.Name), ".", "_"))
			if other, taken := fileByPrefix[prefix]; taken {
				broken = append(broken, &mcpclient.LoadError{File: file.path, Key: cfg.Name, Server: cfg.Name,
					Err: fmt.Errorf("its tools would have the same names as those of a server in %s, ignoring case; rename one of the servers", other)})
				continue
			}
			fileByPrefix[prefix] = file.path
			// Callers that know the sandbox settings and the directories call withSandbox again, which replaces this sandbox.
			configs = append(configs, withSandbox(withLogin(cfg), sandboxSettings{}, nil))
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

func warnBroken(log io.Writer, broken []*mcpclient.LoadError) {
	for _, e := range broken {
		fmt.Fprintf(log, "! skipped: the MCP server %q: %s\n", plainLine(e.Server), indented(e.Error()))
	}
}

// serverOptions are the options for the servers of an agent.
type serverOptions struct {
	elicit  bool               // ask the user the servers' questions
	sample  bool               // let the servers use the model
	policy  *permission.Policy // nil if no tool is called
	sandbox sandboxSettings
}

// withSandbox returns cfg with the sandbox that the server's entry requires, if any. In the sandbox the server cannot
// access protected and secret paths in dirs, or in the current directory if dirs is nil.
func withSandbox(cfg mcpclient.Server, settings sandboxSettings, dirs []string) mcpclient.Server {
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
			return nil, fmt.Errorf("the server's entry requires a sandbox: %w", err)
		}
		return func() error { _, err := cleanup(); return err }, nil
	}
	cfg.Transport = command
	return cfg
}

// mcpServers are the MCP servers of an agent. A server starts when one of its groups is opened.
type mcpServers struct {
	clients []*mcpclient.Client
	groups  []toolkit.Group
}

// grouping configures how tools of MCP servers are grouped.
type grouping struct {
	groups []mcpgroups.Group
	labels []string // the servers whose own groups are used; nil for all
}

// openServers makes the clients and groups for the servers of the files. dirs are the roots of servers
// that ask for them.
func openServers(files []serverFile, dirs []string, opts serverOptions, configured grouping, log io.Writer) (*mcpServers, error) {
	configs, broken, err := loadConfigs(files)
	if err != nil {
		return nil, err
	}
	warnBroken(log, broken)
	s := &mcpServers{}
	cacheDir := serverCache()
	var servers []*mcpgroups.Server
	applyPolicy(opts.policy, configs)
	for _, cfg := range configs {
		cfg = withSandbox(cfg, opts.sandbox, dirs)
		if cfg.WantsRoots {
			cfg.Options.Roots = dirs
		}
		if opts.elicit {
			cfg.Options.Elicitation = mcpclient.ElicitCaller
		}
		if opts.sample {
			cfg.Options.Sampling, cfg.Options.Limits.Samples = mcpclient.SampleCaller, -1 // no limit here: the limits of the agent apply
		}
		c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.clients = append(s.clients, c)
		server := describeServer(c, mcpgroups.OpenCache(cacheDir, cfg), configured.labels == nil || slices.Contains(configured.labels, cfg.Name))
		server.Denied = mcpgroups.DeniedBy(opts.policy)
		servers = append(servers, server)
	}
	groups, _ := mcpgroups.Build(configured.groups, servers)
	// A group of the configuration may be for servers that this run does not have.
	s.groups = toolkit.Import(slices.DeleteFunc(groups, func(g toolkit.Group) bool { return len(g.Sources) == 0 && len(g.Skills) == 0 }))
	return s, nil
}

// serverCache returns the directory in which the names of servers' tools are stored for later runs; "" for none.
func serverCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "kitbag", "mcp-groups")
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

// maxGroupText is how much of the title and the description of a server's own group the model sees, in runes.
const maxGroupText = 300

// describeServer describes a server for mcpgroups.Build, with ownGroups also the groups that the server defines. Groups and
// names of tools are from the cache, which the last connection stored, since listing them would start the server.
func describeServer(c *mcpclient.Client, cache *mcpgroups.Cache, ownGroups bool) *mcpgroups.Server {
	name := c.Name()
	s := &mcpgroups.Server{Name: name, Shown: plain(name), Group: mcpgroups.GroupName(name), Rest: true, Known: cache.Tools(), Skills: c.Skills(),
		Strip: "mcp__", Prefix: strings.ReplaceAll(mcpgroups.GroupName(name), ".", "_") + "__"}
	if ownGroups {
		s.Labels = slices.Clone(cache.Labels())
	}
	for i, l := range s.Labels {
		s.Labels[i].Title, s.Labels[i].Description = shorten(l.Title, maxGroupText), shorten(l.Description, maxGroupText)
	}
	s.Source = func(p mcpgroups.Part) tool.Source { return &serverSource{c, cache, p} }
	return s
}

// A serverSource is the source of a server's tools in one group. Listing the tools starts the server.
type serverSource struct {
	client *mcpclient.Client
	cache  *mcpgroups.Cache
	part   mcpgroups.Part
}

func (s *serverSource) Name() string { return s.client.Name() }

// Known returns the names of the tools in an earlier run.
func (s *serverSource) Known() []string { return s.part.Known }

func (s *serverSource) Withheld(tool string) error { return s.client.Withheld(tool) }

func (s *serverSource) Instructions() string {
	text := shorten(strings.TrimSpace(s.client.Status().Instructions), maxInstructions)
	if text == "" || s.part.HideInstructions {
		return ""
	}
	return fmt.Sprintf("Instructions of the MCP server %q for its tools:\n%s", plain(s.client.Name()), text)
}

// maxInstructions is how much of a server's instructions the model sees, in runes.
const maxInstructions = 8 << 10

// Tools starts the server, and returns the tools that are in the group now: the names from an earlier run may be
// outdated.
func (s *serverSource) Tools(ctx context.Context) ([]tool.Tool, error) {
	all, err := s.client.Tools(ctx)
	if err != nil {
		return nil, addLoginRemedy(s.client.Name(), err)
	}
	groups, err := s.client.Groups(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, t := range all {
		names = append(names, t.Info().Name)
	}
	s.cache.Store(groups, names) // for the next run; this run keeps its groups
	inAnyOf := func(labels []string, name string) bool {
		return slices.ContainsFunc(groups, func(g mcpclient.Group) bool {
			return slices.Contains(labels, g.Name) && slices.Contains(g.Members(), name)
		})
	}
	return slices.DeleteFunc(slices.Clone(all), func(t tool.Tool) bool {
		name := t.Info().Name
		otherPart := s.part.Label != "" && !inAnyOf([]string{s.part.Label}, name) || inAnyOf(s.part.Others, name)
		return otherPart || !s.part.Keep(name)
	}), nil
}
