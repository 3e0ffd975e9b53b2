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
	run       string // AG-UI's runId
	lastInput string // id of the input whose run ends the stream; empty if the next run that ends does
	startSeq  int64  // number of the last event before the stream
	step      int64  // number of the open step; 0 if none is open

	// The AG-UI events of all session events up to number seq were sent, and the first nextSent of the session event
	// after that.
	seq      int64
	nextSent int

	msgPos messagePos // the position in the message whose deltas are being sent
}

// streamEnded is the nextSent of the cursor after an AG-UI event that ended the stream without the end of a run. It is
// larger than the number of AG-UI events of any session event.
const streamEnded = 1 << 30

// A messagePos is a position in a message of the model, whose deltas are sent before the message is stored. Between
// messages it is zero. A message becomes a list of AG-UI events; each part of the message, a text or a reasoning,
// becomes several of them.
type messagePos struct {
	message   string // the message's id
	part      string // id of the open part; empty if none is open
	reasoning bool   // the part is reasoning
	partStart int    // index of the part's first AG-UI event
	next      int    // index of the first AG-UI event that was not sent completely
	offset    int    // number of bytes of that AG-UI event's text that were sent
}

const (
	cursorFields = 12      // number of fields in the text of a cursor
	shortFields  = 6       // number of fields if msgPos is zero
	maxCursor    = 1 << 10 // maximum size of the text in bytes, above what String returns for usual ids
)

// String returns the cursor's text. The ids of messages are escaped, since agent.Config.NewID may return any text.
func (c cursor) String() string {
	kind := "t"
	if c.msgPos.reasoning {
		kind = "r"
	}
	fields := [cursorFields]string{c.run, c.lastInput, itoa(c.startSeq), itoa(c.step), itoa(c.seq), strconv.Itoa(c.nextSent),
		url.QueryEscape(c.msgPos.message), url.QueryEscape(c.msgPos.part), kind, strconv.Itoa(c.msgPos.partStart), strconv.Itoa(c.msgPos.next), strconv.Itoa(c.msgPos.offset)}
	if c.msgPos == (messagePos{}) {
		return strings.Join(fields[:shortFields], "~")
	}
	return strings.Join(fields[:], "~")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

var errCursor = errors.New("Last-Event-ID is not the id of an event of this server")

func parseCursor(text string) (cursor, error) {
	fields := strings.Split(text, "~")
	if len(fields) != shortFields && len(fields) != cursorFields || len(text) > maxCursor {
		return cursor{}, errCursor
	}
	c := cursor{run: fields[0], lastInput: fields[1]}
	if session.CheckID(c.run) != nil || c.lastInput != "" && session.CheckID(c.lastInput) != nil {
		return cursor{}, errCursor
	}
	p := fieldParser{}
	c.startSeq, c.step, c.seq, c.nextSent = p.int64(fields[2]), p.int64(fields[3]), p.int64(fields[4]), p.int(fields[5])
	if len(fields) == cursorFields {
		c.msgPos = messagePos{message: p.unescape(fields[6]), part: p.unescape(fields[7]), reasoning: fields[8] == "r",
			partStart: p.int(fields[9]), next: p.int(fields[10]), offset: p.int(fields[11])}
	}
	if p.invalid || c.seq < c.startSeq || c.String() != text { // String never writes "+1" or "01"
		return cursor{}, errCursor
	}
	return c, nil
}

// A fieldParser parses the fields of a cursor, and records whether any is invalid.
type fieldParser struct{ invalid bool }

func (p *fieldParser) int64(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	p.invalid = p.invalid || err != nil || n < 0
	return n
}

func (p *fieldParser) int(s string) int {
	n := p.int64(s)
	p.invalid = p.invalid || n > streamEnded
	return int(n)
}

func (p *fieldParser) unescape(s string) string {
	text, err := url.QueryUnescape(s)
	p.invalid = p.invalid || err != nil
	return text
}
