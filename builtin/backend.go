package builtin

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/kitbag-go/kitbag/permission"
)

// A Backend is the machine that the tools work on. Paths are absolute. It must
// be safe for concurrent use.
//
// Three optional methods are for judging a call, before it runs. Confines(permission.Profile) error
// returns nil if Run holds a command to the profile read or work, whatever the command does, and
// else why not; without it no command is confined. Readlink(path string)
// (string, error) reads a symbolic link and fails for what is none; without it the links
// of this machine count. Identify(path string) permission.File says what stands at a path
// without links; without it a file is known by its path alone.
type Backend interface {
	// Run runs a program, with nothing to read on standard input, until it
	// ends. A process that it left behind and that still holds the output ends
	// too. If ctx ends first, Run ends every process that the program started
	// and returns the error of ctx, within 200 ms. Other errors mean that the
	// program did not start; a program that fails is no error.
	Run(ctx context.Context, cmd Command) (Exit, error)

	// Open opens a regular file or a directory for reading and refuses
	// everything else with [ErrNotRegular], without waiting for it. A directory
	// is an [fs.ReadDirFile]. If it is an [fs.SubFS] too, searches use its Open
	// for the regular files and its Sub for the directories right in it; what
	// they return is as here, and neither follows a symbolic link.
	//
	// A file with a Device and an Inode is one that was judged: if another one
	// is at its path now, or a link on the way, Open fails with [ErrMoved].
	Open(ctx context.Context, file permission.File) (fs.File, error)

	// Write makes data the content of the file, all of it or nothing, and
	// creates missing directories. The mode of an existing file is kept. Judged
	// files are as for Open; one that is New is created in, or below, the
	// directory that was judged, and fails with [ErrMoved] if it is there now.
	Write(ctx context.Context, file permission.File, data []byte) error
}

// A Command is a program to run.
type Command struct {
	Args   []string  // the program and its arguments; at least one
	Dir    string    // where it runs
	Env    []string  // all of its environment, as "name=value"; nil is that of the process, made fit
	Output io.Writer // receives standard output and error as they come, from one goroutine, until Run returns

	// Profile and Network say how far the program may reach, as it was judged. They
	// are "" and false if nobody judged it, or what judged it has no opinion.
	Profile permission.Profile
	Network bool

	// Except are patterns of absolute paths that it must not read, and Keep of those that it
	// must not change, if it is confined: a deny rule covers them. See [permission.Judgement].
	Except, Keep []string
}

// An Exit says how a program ended.
type Exit struct {
	Code   int    // 0 is success; -1 after a signal
	Signal string // the signal that ended it, such as "killed"; empty for none

	// LeftBehind says that a process which the program left behind still held the
	// output, and was ended.
	LeftBehind bool

	// Denied is what a sandbox is known to have kept from the program, or ended with it, and
	// how to grant it, in sentences for the model; "" for nothing.
	Denied string
}

// ErrNotRegular is the error of opening what is neither a regular file nor a
// directory: devices, pipes, sockets, and the files of /proc and /sys, whose
// content is the kernel's.
var ErrNotRegular = errors.New("neither a regular file nor a directory")

// ErrMoved is the error of opening or writing a file that is not the one that was judged: it
// was replaced, or a symbolic link was put in its way. The same call, made again, is judged
// anew.
var ErrMoved = errors.New("the file moved after the call was judged, so nothing was done; make the call again")
