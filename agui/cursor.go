package agui

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent/session"
)

// A cursor is a position in a stream. As the id of a server-sent event it has everything that another replica needs to
// continue the stream. With a forged cursor a client only gets other events of its own thread.
type cursor struct {
	run   string // AG-UI's runId
	last  string // the id of the input whose run ends the stream; empty for the next run that ends
	after int64  // number of the event after which the stream begins

	step int64 // the open step; 0 if none is open

	// All AG-UI events of the session's events up to number seq were sent, and the first n of the event after that.
	seq int64
	n   int

	mid messagePos // the position within that event, if it is a message whose deltas are being sent
}

// finished is the cursor's n after the last event of a stream that ended without the end of a run.
const finished = 1 << 30

// A messagePos is a position within a message of the model, whose deltas are sent before its event is stored. Between
// messages it is zero. A message is translated to a list of AG-UI events; each part of it, a text or a reasoning,
// becomes several of them.
type messagePos struct {
	message   string
	part      string // the id of the open part; empty if none is open
	reasoning bool   // the part is reasoning
	base      int    // the index of the part's first event
	next      int    // the index of the first event that was not sent completely
	offset    int    // number of bytes of that event's text that were sent
}

const (
	cursorFields = 12 // number of fields in the text of a cursor
	shortFields  = 6  // their number if the cursor is not within a message
)

func (c cursor) String() string {
	kind := "t"
	if c.mid.reasoning {
		kind = "r"
	}
	list := [cursorFields]string{c.run, c.last, itoa(c.after), itoa(c.step), itoa(c.seq), strconv.Itoa(c.n),
		url.QueryEscape(c.mid.message), url.QueryEscape(c.mid.part), kind, strconv.Itoa(c.mid.base), strconv.Itoa(c.mid.next), strconv.Itoa(c.mid.offset)}
	if c.mid == (messagePos{}) {
		return strings.Join(list[:shortFields], "~")
	}
	return strings.Join(list[:], "~")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

var errCursor = errors.New("Last-Event-ID is not the id of an event of this server")

func parseCursor(text string) (cursor, error) {
	list := strings.Split(text, "~")
	if len(list) != shortFields && len(list) != cursorFields || len(text) > 1<<10 {
		return cursor{}, errCursor
	}
	c := cursor{run: list[0], last: list[1]}
	if session.CheckID(c.run) != nil || c.last != "" && session.CheckID(c.last) != nil {
		return cursor{}, errCursor
	}
	p := fieldParser{}
	c.after, c.step, c.seq, c.n = p.int64(list[2]), p.int64(list[3]), p.int64(list[4]), p.int(list[5])
	if len(list) == cursorFields {
		c.mid = messagePos{message: p.unescape(list[6]), part: p.unescape(list[7]), reasoning: list[8] == "r",
			base: p.int(list[9]), next: p.int(list[10]), offset: p.int(list[11])}
	}
	if p.bad || c.seq < c.after || c.String() != text {
		return cursor{}, errCursor
	}
	return c, nil
}

// A fieldParser parses the fields of a cursor, and records whether one is invalid.
type fieldParser struct{ bad bool }

func (p *fieldParser) int64(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	p.bad = p.bad || err != nil || n < 0
	return n
}

func (p *fieldParser) int(s string) int {
	n := p.int64(s)
	p.bad = p.bad || n > finished
	return int(n)
}

func (p *fieldParser) unescape(s string) string {
	text, err := url.QueryUnescape(s)
	p.bad = p.bad || err != nil
	return text
}
