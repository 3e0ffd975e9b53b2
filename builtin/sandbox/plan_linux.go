//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"errors"
)

// A plan has the instructions for the init process.
type plan struct {
	Path string
	Args []string
	Env  []string
	Dir  string

	User, Group int // the caller's ids, which the program keeps

	ReadProfile bool    // use the profile read instead of work
	Network     bool    // use the network of the machine
	Places      []place // parents before their children
	Limits      Limits

	Probe      bool // run no program, but report the available layers
	NoLandlock bool // do not use Landlock
	NoProc     bool // no /proc with processes
	NoScratch  bool // scratch directories stay read-only
	NoUnix     bool // no Unix sockets except pairs

	Files  int  // number of the program's descriptors after the first three
	Leader bool // the caller made the init process the leader of a session or group

	keeper          *keeper
	limitsProcesses bool // the process namespace limits the number of processes
	inCallersGroup  bool // the program is in the caller's process group, so that it gets the signals of the terminal's keys
}

// A report describes how far the program came. The init process writes one to a pipe before the program starts, and
// another when the program has ended.
type report struct {
	Started bool
	Error   string // why the program did not start
	Errno   int    // of the failed system call; 0 if there was none
	Signal  int    // Result.Signal
	Left    bool   // Result.Left

	// The layers that a probe found; Pids means the limit of processes.
	Proc    bool
	Pids    bool
	Scratch bool
	Unix    bool
}

func (p *plan) code(c *coder) {
	c.text(&p.Path)
	c.texts(&p.Args)
	c.texts(&p.Env)
	c.text(&p.Dir)
	c.ints(&p.User, &p.Group)
	c.bools(&p.ReadProfile, &p.Network)
	codeList(c, &p.Places, func(pl *place) { c.text(&pl.Name); c.text(&pl.As) })
	l := &p.Limits
	c.ints(&l.Processes, &l.Files)
	c.int64s(&l.Memory, &l.FileSize, &l.Temporary)
	c.bools(&p.Probe, &p.NoLandlock, &p.NoProc, &p.NoScratch, &p.NoUnix)
	c.ints(&p.Files)
	c.bools(&p.Leader)
}

func (r *report) code(c *coder) {
	c.bools(&r.Started)
	c.text(&r.Error)
	c.ints(&r.Errno, &r.Signal)
	c.bools(&r.Left, &r.Proc, &r.Pids, &r.Scratch, &r.Unix)
}

// A coder writes values in sequence, or reads them. It takes a tenth of the time of encoding/json in a process that
// has just started.
type coder struct {
	data    []byte // the written data, or the rest to read
	reading bool
	short   bool // the data ended too early
}

// encode returns v in the form that decode reads.
func encode(v interface{ code(*coder) }) []byte {
	var c coder
	v.code(&c)
	return c.data
}

// decode reads v and returns the rest of data.
func decode(data []byte, v interface{ code(*coder) }) (rest []byte, err error) {
	c := coder{data: data, reading: true}
	if v.code(&c); c.short {
		return nil, errors.New("the data ends too early")
	}
	return c.data, nil
}

// next returns the next n bytes to read, or nil if there are fewer.
func (c *coder) next(n int) []byte {
	if n < 0 || n > len(c.data) {
		c.short = true
	}
	if c.short {
		return nil
	}
	b := c.data[:n]
	c.data = c.data[n:]
	return b
}

func (c *coder) int64s(list ...*int64) {
	for _, v := range list {
		if !c.reading {
			c.data = binary.LittleEndian.AppendUint64(c.data, uint64(*v))
		} else if b := c.next(8); b != nil {
			*v = int64(binary.LittleEndian.Uint64(b))
		}
	}
}

func (c *coder) ints(list ...*int) {
	for _, v := range list {
		n := int64(*v)
		c.int64s(&n)
		*v = int(n)
	}
}

func (c *coder) bools(list ...*bool) {
	for _, v := range list {
		n := 0
		if *v {
			n = 1
		}
		c.ints(&n)
		*v = n != 0
	}
}

func (c *coder) text(v *string) {
	n := len(*v)
	if c.ints(&n); c.reading {
		*v = string(c.next(n))
		return
	}
	c.data = append(c.data, *v...)
}

func (c *coder) texts(list *[]string) {
	codeList(c, list, c.text)
}

// codeList writes or reads a list.
func codeList[T any](c *coder, list *[]T, element func(*T)) {
	n := len(*list)
	if c.ints(&n); c.reading {
		if n < 0 || n > len(c.data) { // an element has at least one byte
			c.short = true
			return
		}
		*list = make([]T, n)
	}
	for i := range *list {
		element(&(*list)[i])
	}
}
