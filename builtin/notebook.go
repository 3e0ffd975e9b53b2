package builtin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/kitbag-go/kitbag/message"
)

// A notebook is what we show of a Jupyter notebook, format 4:
// https://nbformat.readthedocs.io/en/latest/format_description.html
type notebook struct {
	Cells []struct {
		ID      string   `json:"id"`
		Type    string   `json:"cell_type"`
		Source  lines    `json:"source"`
		Count   *int     `json:"execution_count"`
		Outputs []output `json:"outputs"`
	} `json:"cells"`
}

type output struct {
	Type      string                     `json:"output_type"`
	Text      lines                      `json:"text"`
	Data      map[string]json.RawMessage `json:"data"`
	Ename     string                     `json:"ename"`
	Evalue    string                     `json:"evalue"`
	Traceback []string                   `json:"traceback"`
}

// lines is a text that may be written as a list of lines.
type lines string

func (l *lines) UnmarshalJSON(raw []byte) error {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		*l = lines(strings.Join(list, ""))
		return nil
	}
	return json.Unmarshal(raw, (*string)(l))
}

// readNotebook returns the cells with their outputs; pictures are blocks of
// their own.
func readNotebook(r io.Reader, info fs.FileInfo, name string) ([]message.Block, error) {
	raw, err := readAll(r, info, name, maxDocument)
	if err != nil {
		return nil, err
	}
	var nb notebook
	if err := json.Unmarshal(raw, &nb); err != nil {
		return nil, fmt.Errorf("%s is no notebook of format 4: %w; look at it with Bash", name, err)
	}
	var blocks []message.Block
	var b strings.Builder
	for i, c := range nb.Cells {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("cell-%d", i)
		}
		fmt.Fprintf(&b, "<cell id=%q type=%q>\n%s\n</cell>\n", id, c.Type, c.Source)
		for _, out := range c.Outputs {
			text, pictures := out.show()
			if text != "" {
				short, cut := firstChars(text, 10_000)
				if cut {
					short += "[truncated]"
				}
				fmt.Fprintf(&b, "<output>\n%s\n</output>\n", strings.TrimRight(short, "\n"))
			}
			if len(pictures) > 0 {
				blocks = append(append(blocks, &message.Text{Text: b.String()}), pictures...)
				b.Reset()
			}
		}
		if b.Len() > maxReadText {
			fmt.Fprintf(&b, "[%s more; see them with Bash]\n", count(len(nb.Cells)-i-1, "cell"))
			break
		}
	}
	if b.Len() > 0 || len(blocks) == 0 {
		blocks = append(blocks, &message.Text{Text: b.String()})
	}
	return blocks, nil
}

func (o *output) show() (text string, pictures []message.Block) {
	switch {
	case o.Type == "error":
		return fmt.Sprintf("%s: %s\n%s", o.Ename, o.Evalue, strings.Join(o.Traceback, "\n")), nil
	case o.Text != "":
		return string(o.Text), nil
	}
	for _, mediaType := range []string{"image/png", "image/jpeg"} {
		var b64 lines
		if json.Unmarshal(o.Data[mediaType], &b64) != nil {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(b64), "\n", ""))
		if err == nil && len(data) <= maxImage {
			return "", []message.Block{&message.Data{MediaType: mediaType, Bytes: data}}
		}
	}
	var plain lines
	if json.Unmarshal(o.Data["text/plain"], &plain) != nil {
		return "", nil
	}
	return string(plain), nil
}
