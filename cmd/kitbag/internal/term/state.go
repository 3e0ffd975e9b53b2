package term

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
)

// state is everything that the terminal shows and waits for. Only update changes it.
type state struct {
	Options
	width, height int
	now           time.Time

	editor  textarea.Model
	pastes  []string // the pasted texts for which the editor shows notes; see pasteNote
	menu    []Candidate
	picked  int           // index in menu
	entry   int           // index of the shown entry of the history; its length if none is shown
	draft   string        // the text in the editor before an entry was shown
	queue   []string      // messages that were sent while the agent worked
	reader  chan<- answer // gets the next message; nil if no one waits for it
	leaving bool          // the next interrupt ends the input
	ended   bool          // the user has ended the input; the next reader gets ErrLeft

	work     *work
	tail     string // the end of the streamed text
	question *question
	asked    int // questions so far
}

// A Candidate is a possible completion of the word before the cursor.
type Candidate struct{ Text, Help string }

// work describes the running work, which can be interrupted.
type work struct {
	label    string
	tokens   int
	since    time.Time
	cancel   func()
	stopping bool
	forced   bool
}

// A question is answered by one of keys, or by a line of text if keys is empty.
type question struct {
	id      int
	label   string
	keys    string
	line    textarea.Model
	accepts bool // the question has been shown, so keys are answers to it
	reply   chan<- answer
}

type answer struct {
	text string
	err  error
}

// The messages that the Screen sends to the state. A channel for an answer buffers one.
type (
	readMsg struct{ reply chan<- answer }
	askMsg  struct {
		label, keys, text string // text is the initial content of the line
		reply             chan<- answer
	}
	dropMsg struct{ reply chan<- answer } // the caller does not wait for the answer any more
	workMsg struct {
		label  string
		cancel func()
	}
	statusMsg struct {
		label  string // "" to keep it
		tokens int
	}
	doneMsg   struct{}
	tailMsg   struct{ text string }
	tickMsg   time.Time
	acceptMsg struct{ id int }
)

const (
	maxEditorRows = 8
	maxMenu       = 5

	// acceptAfter is the delay after which a question accepts keys in a terminal that does not report the position of
	// its cursor.
	acceptAfter = 2 * time.Second
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
	e.CharLimit, e.MaxWidth = 0, 0
	e.DynamicHeight, e.MinHeight, e.MaxHeight, e.MaxContentHeight = true, 1, maxEditorRows, 1<<20
	e.SetVirtualCursor(false)
	e.SetStyles(textarea.Styles{})
	e.SetPromptFunc(len(prompt), func(i textarea.PromptInfo) string {
		if i.LineNumber == 0 {
			return prompt
		}
		return strings.Repeat(" ", len(prompt))
	})
	e.KeyMap.InsertNewline.SetKeys("alt+enter", "ctrl+j", "shift+enter")
	e.KeyMap.Paste.SetEnabled(false) // the terminal pastes
	e.Focus()
	return e
}

// update changes the state by a message of the terminal or the Screen.
func (s *state) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
		s.editor.SetWidth(max(s.width-1, 10))
		if s.question != nil && s.question.keys == "" {
			s.question.line.SetWidth(max(s.width-1, 10))
		}
	case tea.KeyPressMsg:
		return s.key(msg)
	case tea.PasteMsg:
		s.paste(msg.Content)
	case tea.CursorPositionMsg:
		s.acceptKeys(s.asked)
	case acceptMsg:
		s.acceptKeys(msg.id)
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
		s.work = &work{label: msg.label, cancel: msg.cancel, since: s.now}
		s.leaving = false
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

// read sends the next message to reply, as soon as there is one.
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

func (s *state) ask(msg askMsg) tea.Cmd {
	s.asked++
	q := &question{id: s.asked, label: msg.label, keys: msg.keys, reply: msg.reply}
	if q.keys == "" {
		q.line = newEditor("? ")
		q.line.SetWidth(max(s.width-1, 10))
		q.line.SetValue(msg.text)
	}
	s.question = q
	return tea.Batch(tea.RequestCursorPosition, tea.Tick(acceptAfter, func(time.Time) tea.Msg { return acceptMsg{q.id} }))
}

func (s *state) acceptKeys(id int) {
	if s.question != nil && s.question.id == id {
		s.question.accepts = true
	}
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
	if name != "ctrl+c" {
		s.leaving = false
	}
	switch {
	case name == "ctrl+c":
		return s.interrupt()
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
	if q != nil { // an interrupt stops the work, not only its question
		s.question = nil
		defer func() { q.reply <- answer{err: ErrInterrupted} }()
	}
	switch {
	case s.work == nil && q != nil:
	case s.work != nil && s.work.stopping:
		s.work.forced = true
		return tea.Quit
	case s.work != nil:
		s.work.stopping = true
		s.work.cancel()
		if len(s.queue) > 0 { // queued messages were meant for after the work: move them back into the editor
			s.setValue(strings.Join(append(s.queue, s.editor.Value()), "\n"))
			s.queue = nil
		}
	case s.leaving:
		s.leave()
	default:
		s.clear()
		s.leaving = true
	}
	return nil
}

func (s *state) leave() {
	s.ended = true
	if s.reader != nil {
		s.reader <- answer{err: ErrLeft}
		s.reader = nil
	}
}

// answerKey handles a key for the question.
func (s *state) answerKey(k tea.KeyPressMsg, name string) {
	q := s.question
	if !q.accepts {
		return // typed before the question was shown
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
			s.leave()
		}
		return
	case name == "tab":
		s.completeWord()
		return
	case (name == "up" || name == "down") && len(s.menu) > 0:
		s.picked += len(s.menu)
		if name == "up" {
			s.picked--
		} else {
			s.picked++
		}
		s.picked %= len(s.menu)
		return
	case name == "up" && s.editor.Line() == 0 && s.editor.LineInfo().RowOffset == 0:
		s.showEntry(s.entry - 1)
		return
	case name == "down" && s.editor.Line() == s.editor.LineCount()-1 && s.editor.LineInfo().RowOffset+1 >= s.editor.LineInfo().Height:
		s.showEntry(s.entry + 1)
		return
	case name == "esc":
		s.menu = nil
		return
	}
	s.editor, _ = s.editor.Update(k)
	s.suggest()
}

// enter sends the text of the editor. A backslash at its end continues it on the next line.
func (s *state) enter() {
	value := s.editor.Value()
	if more, ok := strings.CutSuffix(value, `\`); ok {
		s.setValue(more + "\n")
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

// clear empties the editor.
func (s *state) clear() {
	s.editor.Reset()
	s.pastes, s.menu, s.draft, s.entry = nil, nil, "", len(s.History.entries)
}

func (s *state) setValue(text string) {
	s.editor.SetValue(text)
	s.editor.MoveToEnd()
	s.editor, _ = s.editor.Update(nil) // scrolls to the cursor
	s.menu = nil
}

// showEntry puts entry i of the history into the editor. After the last entry comes the draft that was typed.
func (s *state) showEntry(i int) {
	n := len(s.History.entries)
	if i < 0 || i > n {
		return
	}
	if s.entry == n {
		s.draft = s.editor.Value()
	}
	if s.entry = i; i == n {
		s.setValue(s.draft)
	} else {
		s.setValue(s.History.entries[i])
	}
}

// suggest fills the menu for the word before the cursor.
func (s *state) suggest() {
	s.menu, s.picked = nil, 0
	word := s.word()
	if s.Complete != nil && word != "" {
		s.menu = s.Complete(word)
	}
}

// word returns the word before the cursor if it can be completed: a command at the beginning, or one
// that begins with @.
func (s *state) word() string {
	lines := strings.Split(s.editor.Value(), "\n")
	row, col := s.editor.Line(), s.editor.Column()
	if row >= len(lines) {
		return ""
	}
	before := string([]rune(lines[row])[:min(col, len([]rune(lines[row])))])
	word := before[strings.LastIndexAny(before, " \t")+1:]
	if strings.HasPrefix(word, "@") || row == 0 && word == before && strings.HasPrefix(word, "/") {
		return word
	}
	return ""
}

// completeWord extends the word before the cursor to the common prefix of all candidates, or else replaces it by
// the picked one.
func (s *state) completeWord() {
	if s.menu == nil {
		s.suggest()
	}
	word := s.word()
	if len(s.menu) == 0 || word == "" {
		return
	}
	to := s.menu[0].Text
	for _, c := range s.menu[1:] {
		to = commonPrefix(to, c.Text)
	}
	if len(to) <= len(word) {
		to = s.menu[s.picked].Text
	}
	if rest, ok := strings.CutPrefix(to, word); ok {
		s.editor.InsertString(rest)
	}
	if s.suggest(); len(s.menu) == 1 && s.menu[0].Text == to {
		s.menu = nil
	}
}

func commonPrefix(a, b string) string {
	n := 0
	for i, r := range a {
		if !strings.HasPrefix(b[min(i, len(b)):], string(r)) {
			break
		}
		n = i + len(string(r))
	}
	return a[:n]
}

// visibleMenu returns the shown candidates, and the index of the picked one.
func (s *state) visibleMenu() (shown []Candidate, picked int) {
	from := max(0, min(s.picked-maxMenu/2, len(s.menu)-maxMenu))
	shown = s.menu[from:min(len(s.menu), from+maxMenu)]
	return slices.Clip(shown), s.picked - from
}
