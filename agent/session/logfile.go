package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/kitbag-go/kitbag/agent"
)

// A session file is a header line, then a line for each record:
//
//	{"kitbag_session":1,"id":"customer-7"}
//	{"crc":"8d0a41c5","seq":1,"whole":true,"data":{…}}
//	{"crc":"0b6e9f23","seq":2,"data":{…}}
//
// The checksum is CRC-32C of what follows it up to the end of the line. A line
// whose checksum is wrong was being written when the program or the machine
// stopped: the next record has its number. If a number is missing, a record
// was lost that had been stored, and the file is not to be trusted.

const logVersion = 1

const crcPrefix = `{"crc":"12345678",`

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func header(id string) []byte {
	return fmt.Appendf(nil, `{"kitbag_session":%d,"id":%q}`+"\n", logVersion, id)
}

// appendRecord appends the line of a record.
func appendRecord(buf []byte, rec Record) ([]byte, error) {
	line, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	body := line[1:]
	buf = fmt.Appendf(buf, `{"crc":"%08x",`, crc32.Checksum(body, castagnoli))
	return append(append(buf, body...), '\n'), nil
}

// parseRecord reads a line without its end. intact says that the checksum is
// right; an error then means that this program does not understand the line.
func parseRecord(line []byte) (rec Record, intact bool, err error) {
	if len(line) < len(crcPrefix) {
		return rec, false, nil
	}
	body := line[len(crcPrefix):]
	if string(line[:len(crcPrefix)]) != fmt.Sprintf(`{"crc":"%08x",`, crc32.Checksum(body, castagnoli)) {
		return rec, false, nil
	}
	err = json.Unmarshal(append([]byte("{"), body...), &rec)
	return rec, true, err
}

// logEnd is the end of a session file, where the next record goes.
type logEnd struct {
	seq   int64 // of the last record
	fresh bool  // there is no whole header yet
	torn  bool  // the last line has no end
}

// parseLog reads a session file: the last whole record and those after it.
func parseLog(data []byte, id string) (recs []Record, end logEnd, err error) {
	if want := header(id); len(data) < len(want) && bytes.HasPrefix(want, data) {
		return nil, logEnd{fresh: true}, nil
	}
	line, rest, ended := bytes.Cut(data, []byte("\n"))
	if err := checkHeader(line, id); err != nil {
		return nil, end, err
	}
	for n := 2; len(rest) > 0; n++ {
		line, rest, ended = bytes.Cut(rest, []byte("\n"))
		rec, intact, err := parseRecord(line)
		switch {
		case !intact:
			continue
		case err != nil:
			return nil, end, fmt.Errorf("line %d: a record of another version, perhaps: %w", n, err)
		case rec.Seq != end.seq+1:
			return nil, end, fmt.Errorf("line %d: record %d follows record %d: what was between them is damaged or missing", n, rec.Seq, end.seq)
		}
		if rec.Whole {
			recs = nil
		}
		recs = append(recs, rec)
		end.seq = rec.Seq
	}
	end.torn = !ended
	return recs, end, nil
}

func checkHeader(line []byte, id string) error {
	var h struct {
		Version int    `json:"kitbag_session"`
		ID      string `json:"id"`
	}
	err := json.Unmarshal(line, &h)
	switch {
	case err != nil || h.Version < 1:
		return errors.New("its first line is not that of a kitbag session")
	case h.Version > logVersion:
		return fmt.Errorf("%w: the file's version is %d, this program reads up to %d; update the program",
			agent.ErrNewerState, h.Version, logVersion)
	case h.ID != id:
		return fmt.Errorf("the file is that of session %q", h.ID)
	}
	return nil
}
