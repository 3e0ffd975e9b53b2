package builtin

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/kitbag-go/kitbag/permission"
)

// A Backend is the machine that the tools work on. Paths are absolute. It must be safe for concurrent use.
//
// Three optional methods help to judge a call before it runs. Confines(permission.Profile) error returns nil if Run
// confines every command of that profile, read or work, and otherwise says why not; without this method no command
// is confined. Readlink(path string) (string, error) reads a symbolic link and fails for anything else;
// without this method the links of this machine are used. Identify(path string) permission.File returns the file at
// a path without links; without this method a file is identified by its path alone.
type Backend interface {
	// Run runs a program with empty standard input until it ends. It also ends a process that the program left
	// behind and that still has the output open. If ctx ends first, Run ends every process that the program started
	// and returns the error of ctx, within 200 ms. Any other error means that the program did not start; a program
	// that fails is not an error.
	Run(ctx context.Context, cmd Command) (Exit, error)

	// Open opens a regular file or a directory for reading and refuses anything else with [ErrNotRegular], without
	// blocking. A directory is an [fs.ReadDirFile]. If the directory is also an [fs.SubFS], searches open its regular
	// files with its Open method and its subdirectories with its Sub method, which must not follow symbolic links.
	//
	// A file with a Device and an Inode was judged: if its path now leads to another file, or a link was put in its
	// path, Open fails with [ErrMoved].
	Open(ctx context.Context, file permission.File) (fs.File, error)

	// Write replaces the content of the file by data, completely or not at all, and creates missing directories. It
	// keeps the mode of an existing file. A judged file is checked as by Open. A judged file that is New is created
	// in, or below, the directory that was judged; Write fails with [ErrMoved] if the file exists by now.
	Write(ctx context.Context, file permission.File, data []byte) error
}

// A Command is a program to run.
type Command struct {
	Args   []string  // the program and its arguments; at least one
	Dir    string    // where it runs
	Env    []string  // the whole environment, as "name=value"; nil means the environment of this process without credentials
	Output io.Writer // receives standard output and error as they arrive, from one goroutine, until Run returns

	// Profile and Network are the access that the judgement grants. They are zero if the command was not judged, or
	// the judgement does not set them.
	Profile permission.Profile
	Network bool

	// Except and Keep are patterns of absolute paths that deny rules cover: a confined program must not read what
	// Except covers, and must not change what Keep covers. See [permission.Judgement].
	Except, Keep []string
}

// An Exit says how a program ended.
type Exit struct {
	Code   int    // 0 is success; -1 after a signal
	Signal string // the signal that ended it, such as "killed"; empty for none

	// LeftBehind means that a process which the program left behind still had the output open, and was ended.
	LeftBehind bool

	// Denied explains to the model, in sentences, what a sandbox denied the program and how to grant the access, or
	// which processes the sandbox ended; "" if there is nothing to explain.
	Denied string
}

// ErrNotRegular is the error of opening anything but a regular file or a directory:
// devices, pipes, sockets, and the files of /proc and /sys, which the kernel generates.
var ErrNotRegular = errors.New("neither a regular file nor a directory")

// ErrMoved is the error of opening or writing a file other than the judged one: the judged file was replaced, or a
// symbolic link was put in its path. A repeated call is judged again.
var ErrMoved = errors.New("the file was replaced or moved after the call was judged, so nothing was done; make the call again")
