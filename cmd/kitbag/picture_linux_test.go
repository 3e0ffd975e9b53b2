package main

import (
	"cmp"
	"fmt"
	"html"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	uv "github.com/charmbracelet/ultraviolet"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// TestPictureOfChat compares the picture in README with a chat as it is; `make pictures` draws it again.
func TestPictureOfChat(t *testing.T) {
	workspace(t)
	dir := fmt.Sprintf("/tmp/kitbag%08d", os.Getpid()%1e8) // as long as shownDir, as in eachSize
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "add.go")
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Chdir(dir)
	for name, text := range map[string]string{
		file:       "package add\n\n// Add returns the sum.\nfunc Add(a, b int) int { return a - b }\n",
		configFile: `{"sandbox": {"use": "off"}}`, // not every system has one
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve(t,
		openaitest.Calls(call("Read", fmt.Sprintf(`{"file_path":%q}`, file))),
		openaitest.Calls(call("Edit", fmt.Sprintf(`{"file_path":%q,"old_string":"a - b","new_string":"a + b"}`, file))),
		openaitest.Calls(call("Bash", `{"command":"gofmt -l . && rm -rf build"}`)),
		openaitest.Text("`Add` **subtracted**; now it adds. I did not remove build, as you wanted."))
	t.Setenv("COLORTERM", "truecolor")
	d := colourDisplayAt(t, 92, 40, "chat", "--trust")
	d.ready()
	d.press("Add(2, 1) is 1, find out why" + enter)
	d.question("[y]es, once")
	d.press("y")
	d.question("→ delete", "[y]es, once / [n]o:")
	d.press("n")
	d.question("because")
	d.press("keep it" + enter)
	d.expect("now it adds")
	d.idle()
	got := strings.ReplaceAll(d.svg(), dir, shownDir)
	d.press(ctrlD)
	if err := d.ended(); err != nil {
		t.Errorf("%v\n%s", err, d.screen())
	}
	name := filepath.Join(testdata, "..", "..", "..", "docs", "pictures", "chat.svg")
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the chat looks different from %s; draw it again with: make pictures\n%s", name, d.screen())
	}
}

// The size of a cell in a picture.
const (
	cellWidth  = 8.4
	lineHeight = 19
	margin     = 14
)

// svg draws the screen, without blank lines around it.
func (d *display) svg() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var rows [][]uv.Cell
	first, last := -1, -1
	above := d.emu.ScrollbackLen()
	for y := range above + d.emu.Height() {
		row := make([]uv.Cell, d.emu.Width())
		for x := range row {
			cell := d.emu.CellAt(x, y-above)
			if y < above {
				cell = d.emu.ScrollbackCellAt(x, y)
			}
			if cell != nil {
				row[x] = *cell
			}
			if strings.TrimSpace(row[x].Content) != "" {
				if last = y; first < 0 {
					first = y
				}
			}
		}
		rows = append(rows, row)
	}
	if first < 0 {
		return ""
	}
	rows = rows[first : last+1]
	var b strings.Builder
	w, h := cellWidth*float64(d.emu.Width())+2*margin, lineHeight*len(rows)+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="#d4d4d4" role="img" aria-label="A chat with kitbag in a terminal">
<rect width="100%%" height="100%%" rx="8" fill="#1e1e1e"/>
`, w, h)
	for y, row := range rows {
		for x := 0; x < len(row); {
			end := x + 1
			for end < len(row) && row[end].Style.Equal(&row[x].Style) {
				end++
			}
			var text strings.Builder
			for _, cell := range row[x:end] {
				if cell.Content == "" && cell.Width > 0 {
					cell.Content = " "
				}
				text.WriteString(cell.Content)
			}
			if s := strings.TrimRight(text.String(), " "); s != "" {
				fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" xml:space=\"preserve\"%s>%s</text>\n", margin+cellWidth*float64(x),
					margin+lineHeight*y+14, look(row[x].Style), html.EscapeString(s))
			}
			x = end
		}
	}
	return b.String() + "</svg>\n"
}

// bright are the usual colours of a terminal in place of those of the standard, which are dark.
var bright = map[string]string{"#800000": "#f47067", "#008000": "#6bc46d", "#808000": "#e0b050", "#000080": "#6cb6ff", "#008080": "#56b6c2"}

// look returns the attributes of a style.
func look(s uv.Style) string {
	out := ""
	if s.Fg != nil {
		c := color.NRGBAModel.Convert(s.Fg).(color.NRGBA)
		hex := fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
		out += fmt.Sprintf(` fill="%s"`, cmp.Or(bright[hex], hex))
	}
	if s.Attrs&uv.AttrBold != 0 {
		out += ` font-weight="bold"`
	}
	if s.Attrs&uv.AttrFaint != 0 {
		out += ` opacity="0.6"`
	}
	if s.Attrs&uv.AttrItalic != 0 {
		out += ` font-style="italic"`
	}
	return out
}
