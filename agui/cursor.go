package agui

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent/session"
)

// A cursor is a place in a stream: what the id of a server-sent event contains. It has everything that another
// replica needs to continue the stream. A client can forge one, which only changes what it is sent of its thread.
type cursor struct {
	run   string // AG-UI's runId
	last  string // the id of the input whose run ends the stream; empty for the next run that ends
	after int64  // the stream begins after this event

	step int64 // the open step; 0 if none is

	// Of the events with numbers up to seq, everything was sent; of the next one, the first n.
	seq int64
	n   int

	mid middle
}

// finished is the n of the last event of a stream that did not end with the end of a run.
const finished = 1 << 30

// A middle is a place in a message of the model whose deltas were sent before its event is stored. It is the zero
// middle elsewhere. The message will be translated to a list of events, of which a part, a text or a reasoning, is
// a few.
type middle struct {
	message string
	part    string // the id of the open part; empty if none is open
	think   bool   // whether the part is a reasoning
	base    int    // the index of the part's first event
	next    int    // the index of the first event that was not sent completely
	offset  int    // how many bytes of the text of that event were sent
}

// fields is the number of fields of a cursor's text, and short that of one which is not in the middle of a message.
const (
	fields = 12
	short  = 6
)

func (c cursor) String() string {
	kind := "t"
	if c.mid.think {
		kind = "r"
	}
	list := [fields]string{c.run, c.last, itoa(c.after), itoa(c.step), itoa(c.seq), strconv.Itoa(c.n),
		url.QueryEscape(c.mid.message), url.QueryEscape(c.mid.part), kind, strconv.Itoa(c.mid.base), strconv.Itoa(c.mid.next), strconv.Itoa(c.mid.offset)}
	if c.mid == (middle{}) {
		return strings.Join(list[:short], "~")
	}
	return strings.Join(list[:], "~")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

var errCursor = errors.New("Last-Event-ID is not the id of an event of this server")

// parseCursor parses the text of a cursor.
func parseCursor(text string) (cursor, error) {
	list := strings.Split(text, "~")
	if len(list) != short && len(list) != fields || len(text) > 1<<10 {
		return cursor{}, errCursor
	}
	c := cursor{run: list[0], last: list[1]}
	if session.CheckID(c.run) != nil || c.last != "" && session.CheckID(c.last) != nil {
		return cursor{}, errCursor
	}
	p := numbers{}
	c.after, c.step, c.seq, c.n = p.int64(list[2]), p.int64(list[3]), p.int64(list[4]), p.int(list[5])
	if len(list) == fields {
		c.mid = middle{message: p.unescape(list[6]), part: p.unescape(list[7]), think: list[8] == "r",
			base: p.int(list[9]), next: p.int(list[10]), offset: p.int(list[11])}
	}
	if p.bad || c.seq < c.after || c.String() != text {
		return cursor{}, errCursor
	}
	return c, nil
}

// numbers parses the fields of a cursor, and remembers whether one was wrong.
type numbers struct{ bad bool }

func (p *numbers) int64(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	p.bad = p.bad || err != nil || n < 0
	return n
}

func (p *numbers) int(s string) int {
	n := p.int64(s)
	p.bad = p.bad || n > finished
	return int(n)
}

func (p *numbers) unescape(s string) string {
	text, err := url.QueryUnescape(s)
	p.bad = p.bad || err != nil
	return text
}
