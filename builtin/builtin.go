// Package builtin has the tools an agent works on files with: Bash, Read,
// Write, Edit, Glob and Grep, and a task list.
//
//	tools, err := builtin.New(builtin.Config{Dirs: []string{"/work/project"}})
//
// makes all of them; [Bash], [Read] and so on make one. The tools know the
// working directories: commands run in the first, Glob and Grep search there, and
// relative paths count from it.
//
// # Permission
//
// Each tool judges its own calls for the permission engine, from the arguments
// and the links on disk, and opens no file to do so. Read, Glob and Grep are
// allowed below a working directory of the policy; a path outside is a
// question. A deny or ask rule for Read holds for Glob and Grep too: they leave
// out what it covers, as they do what holds credentials, and say so. What a deny rule
// for Read, Write or Edit covers is out of reach of confined commands as well. Reading what holds credentials, and writing what changes how other
// programs behave (.git, .ssh, .bashrc, …), is a safety ask, which no rule can
// silence. Write and Edit are allowed below a working directory in the modes
// accept-edits and dont-ask. Bash is judged by parsing the command. A policy
// without directories counts those of the [Config]. Write and Edit show what
// they would change through [tool.Previewer].
//
// # Reading before writing
//
// Where the context carries a [tool.State], Write and Edit refuse an existing
// file whose present content was not read in the session: the state keeps a
// hash of each file that was read or written, never the content.
//
// # What is and what is not a boundary
//
// What was judged is what runs. The judgement of a call ([permission.Judgement])
// has the files that it opens, with their links resolved and their identities, and
// the text that Bash runs; the tools take them from there. A file that moved in
// between, or a link that was put in its way, fails the call with [ErrMoved]. See
// [Local] for what holds on which system. A program that runs a tool without a
// judgement has the path looked up as it is then.
//
// Local confines a command that was judged, on Linux, where the kernel permits it: one that
// was proved read-only writes nothing, any other writes in the working directories only, and
// files that hold credentials are not there. See [Local.Sandbox] and the package sandbox.
// Elsewhere, and where a person lets a command out, what Bash runs has the rights of the
// process; confine it with another [Backend]. Its environment has no variable that looks
// like a credential.
//
// A PDF file is not trusted. Read ends a [PDFReader] after half a minute; limits on memory
// are the reader's.
package builtin

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// Config says where and on what the tools work.
type Config struct {
	// Dirs are the working directories. The first is where commands run and
	// what relative paths count from. Empty means the directory of the process.
	// None has to exist yet: a call in one that does not fails, and says so.
	Dirs []string

	// Backend is the machine the tools work on; nil is a [Local] of Dirs.
	Backend Backend

	// ProtectedFiles are base names and ProtectedDirs names of directories
	// anywhere in a path that Bash, Write and Edit ask about before they write,
	// whatever the rules say, in addition to the well-known ones. Case does not
	// count.
	ProtectedFiles []string
	ProtectedDirs  []string

	// Trusted are directories, absolute, whose own settings, plugins and toolchains may run,
	// because a person agreed to them as a whole. Elsewhere a command that would start what a
	// directory brings along, such as the programs that .git/config names, is not read-only;
	// a working directory is no exception.
	Trusted []string

	// KeepEnv are the names of variables that commands find in their environment
	// although they look like credentials. Any other whose name says so (*_KEY, *_TOKEN,
	// *SECRET*, *PASSWORD*, AWS_*, …), or whose value looks like a key, is taken out.
	KeepEnv []string

	// Secrets are values that no command finds in its environment, KeepEnv or not: the
	// key of the model. Those of less than six bytes do not count.
	Secrets []string

	// MaxOutput is how much of the output of a command Bash returns, in characters; 0
	// means 30,000. An agent that keeps long results whole, for the model to read in, can
	// have much more.
	MaxOutput int

	// ImageTypes are the media types, "*" for any part of one, that Read
	// returns as data; nil means image/png, image/jpeg, image/gif and image/webp.
	ImageTypes []string

	// PDF reads PDF files for Read, such as pdf.Reader of the module
	// github.com/kitbag-go/kitbag/builtin/pdf; with nil, Read refuses them.
	PDF PDFReader

	links *links // unless nil, what is known of links
}

// New returns all tools of this package.
func New(c Config) ([]tool.Tool, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	var all []tool.Tool
	for _, newTool := range []func(Config) (tool.Tool, error){
		Bash, Read, Write, Edit, Glob, Grep, TaskCreate, TaskGet, TaskList, TaskUpdate} {
		t, err := newTool(c)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// complete returns c with its defaults filled in and its directories absolute.
func (c Config) complete() (Config, error) {
	dirs := c.Dirs
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	c.Dirs = make([]string, len(dirs))
	for i, d := range dirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return Config{}, fmt.Errorf("builtin: working directory %q: %w", d, err)
		}
		c.Dirs[i] = abs
	}
	if c.Backend == nil {
		c.Backend = &Local{Dirs: c.Dirs}
	}
	return c, nil
}

// place returns where paths are judged from under p, which may be nil.
func (c *Config) place(p *permission.Policy) pathrule.Place {
	home, _ := os.UserHomeDir() // unknown is a value that Place knows
	at := pathrule.Place{Cwd: c.Dirs[0], Home: home, Dirs: c.Dirs, Trusted: c.Trusted}
	if p != nil && len(p.Dirs) > 0 {
		at.Dirs = workingDirs(at, p.Dirs)
	}
	if b, ok := c.Backend.(linkReader); ok {
		at.Readlink, at.ReadFile, at.ReadDir = b.Readlink, c.readFile, c.readDir
	}
	if c.links != nil {
		at.Readlink = c.links.readlink
	}
	return at
}

// maxSettings is the size of the largest file that is read to judge a command, in bytes.
const maxSettings = 1 << 20

// readFile and readDir look at the machine of a backend that is another one.
func (c *Config) readFile(name string) ([]byte, error) {
	f, err := c.Backend.Open(context.Background(), permission.File{Path: name})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return readAll(f, info, name, maxSettings)
}

func (c *Config) readDir(name string) ([]string, error) {
	f, err := c.Backend.Open(context.Background(), permission.File{Path: name})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("%s is not a directory", name)
	}
	entries, err := list.ReadDir(-1)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// workingDirs returns dirs absolute and clean, as they are compared. A relative
// one counts from where commands run; [permission.Policy.Check] tells of it.
func workingDirs(at pathrule.Place, dirs []string) []string {
	if !slices.ContainsFunc(dirs, func(d string) bool { return !path.IsAbs(d) || path.Clean(d) != d }) {
		return dirs
	}
	out := slices.Clone(dirs)
	for i, d := range dirs {
		// One that cannot be known stays: without any, other rules would hold.
		if abs := at.Abs(d); abs != "" {
			out[i] = abs
		}
	}
	return out
}

// A linkReader is a [Backend] whose symbolic links are not those of this
// machine.
type linkReader interface {
	Readlink(path string) (string, error)
}

func (c *Config) guard() pathrule.Protected {
	return pathrule.Protected{Files: c.ProtectedFiles, Dirs: c.ProtectedDirs}
}
