package pdf

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// The characters of single-byte codes that differ from Latin-1; PDF 32000-1, annex D. \uFFFD is a code without
// a character.
var (
	winAnsiEncoding = tableOf(run{0x80, "€\uFFFD‚ƒ„…†‡ˆ‰Š‹Œ\uFFFDŽ\uFFFD\uFFFD‘’“”•–—˜™š›œ\uFFFDžŸ"})

	macRomanEncoding = tableOf(run{0x80, "ÄÅÇÉÑÖÜáàâäãåçéèêëíìîïñóòôöõúùûü†°¢£§•¶ß®©™´¨≠ÆØ∞±≤≥¥µ∂∑∏π∫ªºΩæø" +
		"¿¡¬√ƒ≈∆«»…\u00A0ÀÃÕŒœ–—“”‘’÷◊ÿŸ⁄€‹›ﬁﬂ‡·‚„‰ÂÊÁËÈÍÎÏÌÓÔ\uF8FFÒÚÛÙıˆ˜¯˘˙˚¸˝˛ˇ"})

	pdfDocEncoding = tableOf(run{0x18, "˘ˇˆ˙˝˛˚˜"}, run{0x80, "•†‡…—–ƒ⁄‹›−‰„“”‘’‚™ﬁﬂŁŒŠŸŽıłœšž\uFFFD€"})

	standardEncoding = tableOf(run{0x27, "’"}, run{0x60, "‘"}, run{0x80, strings.Repeat("\uFFFD", 0x21) +
		"¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ\uFFFD–†‡·\uFFFD¶•‚„”»…‰\uFFFD¿\uFFFD`´ˆ˜¯˘˙¨\uFFFD˚¸\uFFFD˝˛ˇ—" +
		strings.Repeat("\uFFFD", 16) + "Æ\uFFFDª\uFFFD\uFFFD\uFFFD\uFFFDŁØŒº\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDæ\uFFFD\uFFFD\uFFFDı\uFFFD\uFFFDłøœß\uFFFD\uFFFD\uFFFD\uFFFD"})
)

// A run has the characters of consecutive codes, from code on.
type run struct {
	code int
	text string
}

func tableOf(runs ...run) func() *encodingTable {
	return sync.OnceValue(func() *encodingTable {
		t := &encodingTable{}
		for i := range t {
			t[i] = string(rune(i))
		}
		for _, run := range runs {
			for _, r := range run.text {
				t[run.code] = string(r)
				run.code++
			}
		}
		return t
	})
}

// namedEncoding returns an encoding by its name, or nil.
func namedEncoding(name string) *encodingTable {
	switch name {
	case "WinAnsiEncoding":
		return winAnsiEncoding()
	case "MacRomanEncoding":
		return macRomanEncoding()
	case "StandardEncoding":
		return standardEncoding()
	}
	return nil
}

//go:embed glyphs.txt
var glyphList string

// glyphs maps the names of glyphs to code points.
var glyphs = sync.OnceValue(func() map[string]rune {
	m := map[string]rune{}
	for line := range strings.Lines(glyphList) {
		fields := strings.Fields(line)
		if r, err := strconv.ParseUint(fields[0], 16, 32); err == nil { // else a comment
			for _, name := range fields[1:] {
				m[name] = rune(r)
			}
		}
	}
	return m
})

// glyphText returns the text of a glyph by its name, by the rules of the Adobe Glyph List,
// or "".
func glyphText(name string) string {
	if r, ok := glyphs()[name]; ok {
		return string(r)
	}
	name, _, _ = strings.Cut(name, ".")
	var text string
	for part := range strings.SplitSeq(name[:min(len(name), 64)], "_") {
		text += partText(part)
	}
	return text
}

func partText(name string) string {
	if r, ok := glyphs()[name]; ok {
		return string(r)
	}
	digits, ok := strings.CutPrefix(name, "uni")
	if ok && len(digits) != 4 { // use the first of several characters
		digits = digits[:min(len(digits), 4)]
	}
	if !ok {
		digits, ok = strings.CutPrefix(name, "u")
	}
	r, err := strconv.ParseUint(digits, 16, 32)
	if !ok || err != nil || len(digits) < 4 || len(digits) > 6 || !utf8.ValidRune(rune(r)) {
		return ""
	}
	return string(rune(r))
}
