package term

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
)

// state is everything that the terminal shows and waits for. Only update changes it.
type state struct {
	Options
	width, height int
	now           time.Time

	editor  textarea.Model
	pastes  []string      // the pasted texts for which the editor shows notes; see pasteNote
	menu    []Candidate   // the candidates for the word before the cursor
	picked  int           // index in menu
	entry   int           // index of the history entry in the editor; the number of entries for a new message
	draft   string        // the new message that a history entry has replaced in the editor
	queue   []string      // messages that were sent while no reader waited
	reader  chan<- answer // waits for the next message; nil if no one does
	leaving bool          // the next interrupt ends the input
	ended   bool          // the user has ended the input; the next reader gets ErrLeft

	work     *work
	tail     string // the end of the streamed text
	question *question
	asked    int  // number of questions so far, and id of the last
	requests int  // requests for the position of the cursor that the terminal has not answered
	reports  bool // the terminal has answered such a request
}

// A Candidate is a possible completion of the word before the cursor.
type Candidate struct{ Text, Help string }

// work describes the running work, which can be interrupted.
type work struct {
	label    string
	tokens   int
	start    time.Time
	cancel   func()
	stopping bool // the user has interrupted the work
	forced   bool // the user has interrupted the work again
}

// A question is answered by one of keys, or by a line of text if keys is empty.
type question struct {
	id    int
	label string
	keys  string
	line  textarea.Model
	round int // of the requests for the position of the cursor, from 1; 0 when keys are accepted; see doc.go
	reply chan<- answer
}

type answer struct {
	text string
	err  error
}

// The messages that the Screen and timers send to the state. A reply channel has a buffer for its one answer, so that
// sending never blocks.
type (
	readMsg struct{ reply chan<- answer }
	askMsg  struct {
		label, keys, text string // text is the initial content of the line
		reply             chan<- answer
	}
	dropMsg struct{ reply chan<- answer } // the caller does not wait for the answer any more
	workMsg struct {
		label  string
		start  time.Time
		cancel func()
	}
	statusMsg struct {
		label  string // "" to keep the label
		tokens int
	}
	doneMsg struct{}              // the work has ended
	tailMsg struct{ text string } // replaces state.tail
	tickMsg time.Time             // the time, every second during work
	lateMsg struct{ id int }      // the question with the id has been shown for reportTime
)

const (
	maxEditorRows = 8
	maxMenu       = 5 // candidates that are shown at once

	// reportTime is how long a terminal may take to report the position of its cursor.
	reportTime = 2 * time.Second
)

func newState(o Options) *state {
	if o.History == nil {
		o.History = &History{}
	}
	return &state{Options: o, width: 80, height: 24, editor: newEditor("> "), entry: len(o.History.entries)}
}

// newEditor returns a text area whose first row begins with the prompt.
func newEditor(prompt string) textarea.Model {
	e := textarea.New()
	e.ShowLineNumbers = false
	e.EndOfBufferCharacter = ' '
	e.CharLimit, e.MaxWidth, e.MaxContentHeight = 0, 0, 1<<20 // no limits
	e.DynamicHeight, e.MinHeight, e.MaxHeight = true, 1, maxEditorRows
	e.SetVirtualCursor(false)
	e.SetStyles(textarea.Styles{})
	e.SetPromptFunc(len(prompt), func(i textarea.PromptInfo) string {
		if i.LineNumber == 0 {
			return prompt
		}
		return strings.Repeat(" ", len(prompt))
	})
	e.KeyMap.InsertNewline.SetKeys("alt+enter", "ctrl+j", "shift+enter")
	e.KeyMap.Paste.SetEnabled(false) // the terminal pastes: see tea.PasteMsg
	e.Focus()
	return e
}

// editorWidth leaves the terminal's last column to the cursor. Its minimum is minWidth and two columns for the prompt.
func (s *state) editorWidth() int { return max(s.width-1, minWidth+2) }

// update changes the state as a message of the terminal, the Screen or a timer demands.
func (s *state) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
		s.editor.SetWidth(s.editorWidth())
		if s.question != nil && s.question.keys == "" {
			s.question.line.SetWidth(s.editorWidth())
		}
	case tea.KeyPressMsg:
		return s.key(msg)
	case tea.PasteMsg:
		s.paste(msg.Content)
	case tea.CursorPositionMsg:
		return s.reported()
	case tea.ResumeMsg:
		s.requests = 0 // another program may have read the reports
		if s.question != nil && s.question.round != 0 {
			return s.firstRound()
		}
	case lateMsg:
		return s.late(msg.id)
	case tickMsg:
		s.now = time.Time(msg)
		if s.work != nil {
			return tick()
		}
	case readMsg:
		s.read(msg.reply)
	case askMsg:
		return s.ask(msg)
	case dropMsg:
		s.drop(msg.reply)
	case workMsg:
		s.work = &work{label: msg.label, start: msg.start, cancel: msg.cancel}
		s.now, s.leaving = msg.start, false
		return tick()
	case statusMsg:
		if s.work != nil {
			s.work.label, s.work.tokens = cmp.Or(msg.label, s.work.label), msg.tokens
		}
	case doneMsg:
		s.work = nil
	case tailMsg:
		s.tail = msg.text
	}
	return nil
}

func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// read sends the next message to reply as soon as the user has sent one.
func (s *state) read(reply chan<- answer) {
	switch {
	case s.ended:
		reply <- answer{err: ErrLeft}
	case len(s.queue) > 0:
		reply <- answer{text: s.queue[0]}
		s.queue = s.queue[1:]
	default:
		s.reader = reply
	}
}

// ask sets the question, which accepts keys after two reports of the terminal or after reportTime.
func (s *state) ask(msg askMsg) tea.Cmd {
	s.asked++
	q := &question{id: s.asked, label: msg.label, keys: msg.keys, reply: msg.reply}
	if q.keys == "" {
		q.line = newEditor("? ")
		q.line.SetWidth(s.editorWidth())
		q.line.SetValue(msg.text)
	}
	s.question = q
	return s.firstRound()
}

// firstRound requests the position of the cursor to find out when the question has been drawn.
func (s *state) firstRound() tea.Cmd {
	q := s.question
	q.round = 1
	s.requests++
	return tea.Batch(tea.RequestCursorPosition, tea.Tick(reportTime, func(time.Time) tea.Msg { return lateMsg{q.id} }))
}

// reported handles a report of the position of the cursor. bubbletea may write the request of the first round just before
// the frame with the question, but that of the second round after it.
func (s *state) reported() tea.Cmd {
	if s.requests == 0 {
		return nil // not a report: Shift-F3 looks like one
	}
	s.requests--
	s.reports = true
	if q := s.question; s.requests == 0 && q != nil { // the other reports were for earlier questions
		switch q.round {
		case 1:
			q.round = 2
			s.requests++
			return tea.RequestCursorPosition
		case 2:
			q.round = 0
		}
	}
	return nil
}

// late accepts keys for the question with the id if the terminal does not report, or requests a lost report again.
func (s *state) late(id int) tea.Cmd {
	q := s.question
	if q == nil || q.id != id || q.round == 0 {
		return nil
	}
	if s.reports {
		s.requests = 0
		return s.firstRound()
	}
	q.round = 0
	return nil
}

// drop removes the reader or question that waits for reply.
func (s *state) drop(reply chan<- answer) {
	if s.reader == reply {
		s.reader = nil
	}
	if s.question != nil && s.question.reply == reply {
		s.question = nil
	}
}

// key handles a pressed key.
func (s *state) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	if name == "ctrl+c" {
		return s.interrupt()
	}
	s.leaving = false
	switch {
	case name == "ctrl+z":
		return tea.Suspend
	case s.question != nil:
		s.answerKey(k, name)
	default:
		s.editKey(k, name)
	}
	return nil
}

// interrupt stops the work, or empties the editor, or ends the input. It never sends the typed text.
func (s *state) interrupt() tea.Cmd {
	q := s.question
	if q != nil {
		s.question = nil
		defer func() { q.reply <- answer{err: ErrInterrupted} }() // after work.cancel, so that the caller finds the work cancelled
	}
	switch {
	case s.work == nil && q != nil: // the interrupt only ends the question
	case s.work != nil && s.work.stopping:
		s.work.forced = true
		return tea.Quit
	case s.work != nil:
		s.work.stopping = true
		s.work.cancel()
		if len(s.queue) > 0 { // the user may not want to send these messages any more: move them back into the editor
			s.setValue(strings.Join(append(s.queue, s.editor.Value()), "\n"))
			s.queue = nil
		}
	case s.leaving:
		s.endInput()
	default:
		s.clear()
		s.leaving = true
	}
	return nil
}

// endInput makes this reader and all later readers get ErrLeft.
func (s *state) endInput() {
	s.ended = true
	if s.reader != nil {
		s.reader <- answer{err: ErrLeft}
		s.reader = nil
	}
}

// answerKey handles a key for the question.
func (s *state) answerKey(k tea.KeyPressMsg, name string) {
	q := s.question
	if q.round != 0 {
		return // the key may have been pressed before the question was shown
	}
	reply := func(a answer) {
		s.question = nil
		q.reply <- a
	}
	switch {
	case q.keys != "":
		if t := strings.ToLower(k.Text); len(t) == 1 && strings.Contains(q.keys, t) {
			reply(answer{text: t})
		}
	case name == "enter":
		reply(answer{text: q.line.Value()})
	case name == "ctrl+d" && q.line.Value() == "":
		reply(answer{err: ErrLeft})
	default:
		q.line, _ = q.line.Update(k)
	}
}

// editKey handles a key for the editor.
func (s *state) editKey(k tea.KeyPressMsg, name string) {
	switch {
	case name == "enter":
		s.enter()
		return
	case name == "ctrl+d" && s.editor.Value() == "":
		if s.work == nil {
			s.endInput()
		}
		return
	case name == "tab":
		s.completeWord()
		return
	case name == "up" && len(s.menu) > 0:
		s.picked = (s.picked + len(s.menu) - 1) % len(s.menu)
		return
	case name == "down" && len(s.menu) > 0:
		s.picked = (s.picked + 1) % len(s.menu)
		return
	case name == "up" && s.editor.Line() == 0 && s.editor.LineInfo().RowOffset == 0: // in the first row
		s.showEntry(s.entry - 1)
		return
	case name == "down" && s.editor.Line() == s.editor.LineCount()-1 && s.editor.LineInfo().RowOffset+1 >= s.editor.LineInfo().Height: // in the last row
		s.showEntry(s.entry + 1)
		return
	case name == "esc":
		s.menu = nil
		return
	}
	s.editor, _ = s.editor.Update(k)
	s.suggest()
}

// enter sends the message in the editor, or begins a new line if the message ends with a backslash.
func (s *state) enter() {
	value := s.editor.Value()
	if text, ok := strings.CutSuffix(value, `\`); ok {
		s.setValue(text + "\n")
		return
	}
	text := strings.TrimSpace(s.expand(value))
	if text == "" {
		return
	}
	_ = s.History.Add(text) // on failure the history still works in memory
	s.clear()
	if s.reader == nil {
		s.queue = append(s.queue, text)
		return
	}
	s.reader <- answer{text: text}
	s.reader = nil
}

// clear empties the editor for a new message.
func (s *state) clear() {
	s.editor.Reset()
	s.pastes, s.menu, s.draft, s.entry = nil, nil, "", len(s.History.entries)
}

// setValue replaces the text of the editor, and moves the cursor behind the text.
func (s *state) setValue(text string) {
	s.editor.SetValue(text)
	s.editor.MoveToEnd()
	s.editor, _ = s.editor.Update(nil) // scrolls to the cursor
	s.menu = nil
}

// showEntry puts entry i of the history into the editor, or the draft behind the last entry.
func (s *state) showEntry(i int) {
	n := len(s.History.entries)
	if i < 0 || i > n {
		return
	}
	if s.entry == n {
		s.draft = s.editor.Value()
	}
	s.entry = i
	if i == n {
		s.setValue(s.draft)
	} else {
		s.setValue(s.History.entries[i])
	}
}

// suggest fills the menu for the word before the cursor.
func (s *state) suggest() {
	s.menu, s.picked = nil, 0
	word := s.commandOrFile()
	if s.Complete != nil && word != "" {
		s.menu = s.Complete(word)
	}
}

// commandOrFile returns the word before the cursor if the word can be completed: a word that begins with / at the
// beginning of the message, or with @ anywhere. It returns "" for other words.
func (s *state) commandOrFile() string {
	row := s.editor.Line()
	line := strings.Split(s.editor.Value(), "\n")[row]
	before := string([]rune(line)[:s.editor.Column()])
	word := before[strings.LastIndexAny(before, " \t")+1:]
	if strings.HasPrefix(word, "@") || row == 0 && word == before && strings.HasPrefix(word, "/") {
		return word
	}
	return ""
}

// completeWord completes the word before the cursor to the common prefix of all candidates, or, if the word is that
// prefix already, to the picked candidate.
func (s *state) completeWord() {
	if s.menu == nil {
		s.suggest()
	}
	word := s.commandOrFile()
	if len(s.menu) == 0 || word == "" {
		return
	}
	completed := s.menu[0].Text
	for _, c := range s.menu[1:] {
		completed = commonPrefix(completed, c.Text)
	}
	if len(completed) <= len(word) {
		completed = s.menu[s.picked].Text
	}
	if rest, ok := strings.CutPrefix(completed, word); ok {
		s.editor.InsertString(rest)
	}
	s.suggest()
	if len(s.menu) == 1 && s.menu[0].Text == completed { // nothing is left to complete
		s.menu = nil
	}
}

func commonPrefix(a, b string) string {
	for !strings.HasPrefix(b, a) {
		_, n := utf8.DecodeLastRuneInString(a)
		a = a[:len(a)-n]
	}
	return a
}

// visibleMenu returns the candidates to show, and the index of the picked candidate among them.
func (s *state) visibleMenu() (shown []Candidate, picked int) {
	from := max(0, min(s.picked-maxMenu/2, len(s.menu)-maxMenu))
	return s.menu[from:min(len(s.menu), from+maxMenu)], s.picked - from
}
