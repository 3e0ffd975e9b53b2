package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/kitbag-go/kitbag/agent"
)

// A session file is a header line, then for each record its line and a summary of the session after it:
//
//	{"kitbag_session":1,"id":"customer-7"}
//	{"crc":"8d0a41c5","seq":1,"whole":true,"data":{…}}
//	{"sum":"51f2bb90","size":50,"seq":1,"status":"working"}
//	{"crc":"0b6e9f23","seq":2,"data":{…},"took":[…],"event":7,"events":[…]}
//	{"sum":"77e0a1d4","size":90,"seq":2,"event":7,"took":1,"status":"ended"}
//
// The checksum is CRC-32C of the rest of the line. A line with a wrong checksum is ignored: it was being written when
// the program or the machine stopped, and its record was not stored. If the number of a record is missing, or a summary
// follows without its record, a stored record was lost or edited, and reading the file fails.
//
// The summary at the end of a file contains the Info of the session, and the size of the record's line. If the last
// line is not a summary, because it was cut off or an older program wrote the file, the whole file is read. An older
// program ignores a summary like a line with a wrong checksum.

const logVersion = 1

// The kinds of lines with a checksum, by the name of their first member.
const (
	recordLine  = "crc"
	summaryLine = "sum"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// linePrefix returns the beginning of a line, up to body.
func linePrefix(kind string, body []byte) string {
	return fmt.Sprintf(`{"%s":"%08x",`, kind, crc32.Checksum(body, castagnoli))
}

// appendLine appends a line with the encoding of v, a struct.
func appendLine(buf []byte, kind string, v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	body := line[1:] // linePrefix has the brace
	buf = append(buf, linePrefix(kind, body)...)
	return append(append(buf, body...), '\n'), nil
}

// parseLine parses a line of the given kind, without its newline, into v. intact reports whether the line is of that
// kind and has the right checksum. An error for an intact line means that this program does not understand the line.
func parseLine(line []byte, kind string, v any) (intact bool, err error) {
	n := len(linePrefix(kind, nil)) // the same for every body
	if len(line) < n || string(line[:n]) != linePrefix(kind, line[n:]) {
		return false, nil
	}
	return true, json.Unmarshal(append([]byte("{"), line[n:]...), v)
}

// A storedRecord is the content of a record's line.
type storedRecord struct {
	Record
	Event  int64   `json:"event,omitempty"` // the number of the last event so far
	Events []Event `json:"events,omitempty"`
}

// A summary is the content of a summary line: the Info of a session.
type summary struct {
	Size     int               `json:"size"` // bytes of the record's line, with its newline
	Seq      int64             `json:"seq"`
	Event    int64             `json:"event,omitempty"`
	Consumed int               `json:"took,omitempty"` // how many inputs were consumed so far
	Status   Status            `json:"status,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Updated  time.Time         `json:"updated"`
}

// maxSummary is more than the size, in bytes, of any summary line: 16 labels of 256 escaped bytes have less.
const maxSummary = 32 << 10

// readSummary reads the last line of a file into v, a pointer to a summary or an inboxSummary. ok is false if that line
// is not a summary, or if the line before it is damaged: when a machine loses power, the end of a write may be on the
// disk without its beginning. Then the whole file must be read.
func readSummary(f *os.File, v any) (ok bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	end := info.Size()
	buf, err := readBefore(f, end, maxSummary)
	if err != nil {
		return false, err
	}
	line, ended := bytes.CutSuffix(buf, []byte("\n"))
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	var sum struct {
		Size int64 `json:"size"`
	}
	intact, err := parseLine(line, summaryLine, &sum)
	if !ended || !intact || err != nil || json.Unmarshal(line, v) != nil {
		return false, nil
	}
	record, err := readBefore(f, end-int64(len(line))-1, sum.Size)
	if err != nil {
		return false, err
	}
	intact, _ = parseLine(bytes.TrimSuffix(record, []byte("\n")), recordLine, new(struct{}))
	return intact && int64(len(record)) == sum.Size, nil
}

// readBefore reads the n bytes of f before end, or all bytes before end if there are fewer.
func readBefore(f *os.File, end, n int64) ([]byte, error) {
	buf := make([]byte, max(min(end, n), 0))
	_, err := f.ReadAt(buf, end-int64(len(buf)))
	if errors.Is(err, io.EOF) { // the file was truncated in the meantime
		err = nil
	}
	return buf, err
}

// The kinds of headers, by the name of their first member.
const (
	sessionHeader = "kitbag_session"
	inboxHeader   = "kitbag_inbox"
)

// header returns the first line of a file.
func header(kind, id string) []byte {
	return fmt.Appendf(nil, `{"%s":%d,"id":%q}`+"\n", kind, logVersion, id)
}

// A logFile is the content of a session file, as far as it was read.
type logFile struct {
	summary                   // after the last record that was read; Size is not set
	recs     []Record         // the last whole record and those after it
	consumed map[string]Entry // the Record and Refused of each consumed input, by its id
	fresh    bool             // the header is missing or incomplete
	torn     bool             // the last line is incomplete

	damaged int  // the number of a line after the last record whose checksum is wrong; 0 for none
	zeros   bool // the damaged line contains zero bytes
}

func (s summary) info(id string) Info {
	return Info{ID: id, Updated: s.Updated, Seq: s.Seq, Event: s.Event, Status: s.Status, Labels: s.Labels}
}

// cutHeader returns the lines after the header of a file. fresh means that the header is missing or incomplete.
func cutHeader(data []byte, kind, id string) (lines []byte, fresh bool, err error) {
	if want := header(kind, id); len(data) < len(want) && bytes.HasPrefix(want, data) {
		return nil, true, nil
	}
	line, lines, _ := bytes.Cut(data, []byte("\n"))
	return lines, false, checkHeader(line, kind, id)
}

// parseLog parses a session file up to the record with number seq, or all of it if seq is 0.
func parseLog(data []byte, id string, seq int64) (*logFile, error) {
	lines, fresh, err := cutHeader(data, sessionHeader, id)
	if err != nil {
		return nil, err
	}
	l := &logFile{consumed: map[string]Entry{}, fresh: fresh, torn: !fresh && !bytes.HasSuffix(data, []byte("\n"))}
	for n := 2; len(lines) > 0 && (seq == 0 || l.Seq < seq); n++ {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\n"))
		if err := l.addLine(line, n); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return l, nil
}

// addLine adds the content of line n.
func (l *logFile) addLine(line []byte, n int) error {
	if bytes.HasPrefix(line, []byte(`{"`+summaryLine)) {
		var sum summary
		intact, err := parseLine(line, summaryLine, &sum)
		switch {
		case !intact || err != nil: // ignored, because a file without summaries is valid too
		case sum.Seq == l.Seq:
			l.Updated = sum.Updated
		case sum.Seq == l.Seq+1 && !l.zeros: // a loss of power can leave zeros in place of the record
			return gapError(sum.Seq, l.Seq, l.damaged)
		}
		return nil
	}
	var rec struct {
		Record
		Event int64 `json:"event"` // 0 if an older program wrote the line
	}
	intact, err := parseLine(line, recordLine, &rec)
	switch {
	case !intact:
		l.damaged, l.zeros = n, bytes.IndexByte(line, 0) >= 0
		return nil
	case err != nil:
		return fmt.Errorf("cannot decode the record; if another version of kitbag wrote it, use that version: %w", err)
	case rec.Seq != l.Seq+1:
		return gapError(rec.Seq, l.Seq, l.damaged)
	}
	l.damaged, l.zeros = 0, false
	if rec.Whole {
		l.recs = nil
	}
	l.recs = append(l.recs, rec.Record)
	l.addConsumed(rec.Record)
	l.summary = summary{Seq: rec.Seq, Event: max(rec.Event, l.Event), Consumed: l.Consumed + len(rec.Consumed), Status: rec.Status, Labels: rec.Labels, Updated: l.Updated}
	return nil
}

func (l *logFile) addConsumed(rec Record) {
	for _, in := range rec.Consumed {
		l.consumed[in.ID] = Entry{Record: rec.Seq, Refused: in.Refused}
	}
}

// gapError is the error for record seq if record last is the one before it. damaged is the number of a line between the
// two whose checksum is wrong; 0 if there is none.
func gapError(seq, last int64, damaged int) error {
	what := fmt.Sprintf("record %d is missing", last+1)
	switch {
	case seq <= last:
		what = fmt.Sprintf("record %d follows record %d", seq, last)
	case damaged > 0:
		what = fmt.Sprintf("record %d was edited or damaged: the checksum of line %d is wrong", last+1, damaged)
	}
	return fmt.Errorf("%s; restore the file from a copy, or use another session", what)
}

// checkHeader checks the header line of a file.
func checkHeader(line []byte, kind, id string) error {
	var h map[string]json.RawMessage
	var version int
	var fileID string
	err := json.Unmarshal(line, &h)
	err = errors.Join(err, json.Unmarshal(h[kind], &version), json.Unmarshal(h["id"], &fileID))
	switch {
	case version > logVersion:
		return fmt.Errorf("%w: the file's version is %d, this program reads up to %d; update the program",
			agent.ErrNewerState, version, logVersion)
	case err != nil || version < 1:
		return errors.New("its first line is not the header of a kitbag session")
	case fileID != id:
		return fmt.Errorf("the file belongs to session %q", fileID)
	}
	return nil
}
