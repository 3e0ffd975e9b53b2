package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/catalog"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/openai"
)

// apiAnthropic is the API of package anthropic. Package openai has the other APIs.
const apiAnthropic = "anthropic"

var apis = []string{string(openai.APIChat), string(openai.APIResponses), apiAnthropic}

// modelSettings select the model, as flags or as members of a configuration.
type modelSettings struct {
	model     string   // "" for $KITBAG_MODEL
	api       string   // one of apis; "" for $KITBAG_API or, if that is not set, an API chosen by each model's name
	endpoint  endpoint // for the models of one vendor
	fallback  []string // models to call if the ones before them fail
	effort    string   // how much the models reason, such as low; "" for the model's default
	thinking  string   // for Claude models, see parseThinking; "" for the model's default
	cache     string   // how long Anthropic keeps the prompt: 1h or off; "" for five minutes
	lateTools *bool    // whether the endpoint accepts tools added in mid-conversation; nil if unknown
}

// An endpoint is a server of a vendor's API. Models of other vendors do not use it, as it must not get their keys.
type endpoint struct {
	url    string  // "" for the vendor's environment variable
	vendor *vendor // nil for the first model's vendor; set if the URL is from a configuration
}

// UnmarshalJSON reads the URL. readSettings sets the vendor, which depends on the configuration's API and model.
func (e *endpoint) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &e.url) }

func (e endpoint) String() string { return e.url }

// A vendor has the names of the environment variables for its API: with the key, and with the URL of its server.
type vendor struct{ keyVar, urlVar string }

var (
	vendorOpenAI    = &vendor{"OPENAI_API_KEY", "OPENAI_BASE_URL"}
	vendorAnthropic = &vendor{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}
)

// vendorOf returns the vendor of the API, or, if api is "", of the model's name.
func vendorOf(api, name string) *vendor {
	if api == apiAnthropic || api == "" && strings.HasPrefix(name, "claude-") {
		return vendorAnthropic
	}
	return vendorOpenAI
}

// register adds the flags about the model.
func (s *modelSettings) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&s.model, "model", "", "the model (default $KITBAG_MODEL)")
	fl.StringVar(&s.api, "api", "", "the model's API: "+strings.Join(apis, ", ")+" (default $KITBAG_API, or by the name of the model)")
	fl.StringVar(&s.endpoint.url, "base-url", "", "the `URL` of the model's endpoint (default $OPENAI_BASE_URL, or $ANTHROPIC_BASE_URL)")
	fl.StringArrayVar(&s.fallback, "fallback", nil, "a `MODEL` to call if the others before it fail, repeatable")
	fl.StringVar(&s.effort, "effort", "", "the effort of the model's reasoning, such as low or high")
	fl.StringVar(&s.thinking, "thinking", "", "the thinking of Claude models: adaptive, off, or the maximum number of `TOKENS`")
	fl.StringVar(&s.cache, "cache", "", "how long Anthropic keeps the prompt for the next request: 1h or off (default five minutes)")
}

// names returns the names of the models, in the order in which they are called.
func (s *modelSettings) names() []string {
	return append([]string{cmp.Or(s.model, os.Getenv("KITBAG_MODEL"))}, s.fallback...)
}

// openModel opens the model with its fallbacks. It calls notify when a different model answers than for the last call.
func (s *modelSettings) openModel(notify func(string)) (model.Model, error) {
	names := s.names()
	if slices.Contains(s.fallback, "") {
		return nil, usage("the name of a model in --fallback or kitbag.json is empty; write it: --fallback MODEL")
	}
	models := make([]model.Model, len(names))
	notifier := &changeNotifier{names: names, notify: notify, errs: make([]error, len(names))}
	for i, name := range names {
		var err error
		if models[i], err = s.openNamed(name); err != nil {
			return nil, err
		}
		if len(names) > 1 {
			retry := middleware.RetryConfig{}
			if i+1 < len(names) {
				retry.Retries = 1 // the next model answers sooner than an overloaded one
			}
			models[i] = &watchedModel{middleware.Retry(models[i], retry), notifier, i}
		}
	}
	if len(models) == 1 {
		return models[0], nil
	}
	return middleware.Fallback(models, middleware.FallbackConfig{}), nil
}

// A changeNotifier notifies the user when another model answers than before. It is safe for concurrent use, as an agent may call
// its model for a summary or for a server at the same time.
type changeNotifier struct {
	names  []string
	notify func(string)

	mu      sync.Mutex
	current int     // index of the model that answered last
	errs    []error // the last error of each model
}

// record is called with each part of an answer of the model at index, or with its error.
func (c *changeNotifier) record(index int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.errs[index] = err
		return
	case index > c.current:
		c.notify(fmt.Sprintf("%s failed: %v; %s answers instead", c.names[c.current], c.errs[c.current], c.names[index]))
	case index < c.current:
		c.notify(c.names[index] + " answers again")
	}
	c.current = index
}

// A watchedModel reports its answers to a changeNotifier.
type watchedModel struct {
	model.Model
	notifier *changeNotifier
	index    int
}

// Unwrap is for [model.As].
func (m *watchedModel) Unwrap() model.Model { return m.Model }

func (m *watchedModel) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		for c, err := range m.Model.Generate(ctx, req) {
			m.notifier.record(m.index, err)
			if !yield(c, err) {
				return
			}
		}
	}
}

// openNamed opens the model with the name. The key is read from the environment only: a flag would be visible to every
// user of the machine, and files end up in repositories.
func (s *modelSettings) openNamed(name string) (model.Model, error) {
	api := cmp.Or(s.api, os.Getenv("KITBAG_API"))
	if name == "" {
		return nil, errors.New("no model; set KITBAG_MODEL or add --model, with a name that the server knows; kitbag init asks for it and stores it, kitbag demo needs none")
	}
	if api != "" && !slices.Contains(apis, api) {
		return nil, usage("unknown API %q in --api, KITBAG_API or kitbag.json; choose from %s", api, strings.Join(apis, ", "))
	}
	thinking, err := parseThinking(s.thinking) // also for other models: a mistake in a setting that is not used is still one
	if err != nil {
		return nil, err
	}
	if s.cache != "" && s.cache != string(anthropic.CacheHour) && s.cache != string(anthropic.CacheOff) {
		return nil, usage("unknown value %q in --cache or kitbag.json; write 1h or off, or leave it out for five minutes", s.cache)
	}
	v := vendorOf(api, name)
	url := os.Getenv(v.urlVar)
	var lateTools *bool
	switch s.endpoint.vendor {
	case nil: // the URL is from --base-url, which overrides the variable
		if v == vendorOf(api, s.names()[0]) {
			url, lateTools = cmp.Or(s.endpoint.url, url), s.lateTools
		}
	case v: // the URL is from a configuration, which the variable overrides
		url, lateTools = cmp.Or(url, s.endpoint.url), s.lateTools
	}
	var extra map[string]json.RawMessage
	if s.effort != "" {
		level, err := json.Marshal(s.effort)
		if err != nil {
			return nil, err
		}
		extra = map[string]json.RawMessage{"reasoning_effort": level}
	}
	if v == vendorOpenAI {
		return openai.New(openai.Config{Model: name, BaseURL: url, Key: os.Getenv(v.keyVar), API: openai.API(api), Extra: extra, LateTools: lateTools})
	}
	m, err := anthropic.New(anthropic.Config{Model: name, BaseURL: url, Key: os.Getenv(v.keyVar), Extra: extra, LateTools: lateTools,
		Thinking: thinking, Cache: anthropic.Cache(s.cache)})
	if err != nil && api == "" && os.Getenv(v.keyVar) == "" && os.Getenv(vendorOpenAI.urlVar) != "" {
		err = fmt.Errorf("%w; if the server of OPENAI_BASE_URL has %s, set KITBAG_API=chat", err, name)
	}
	return m, err
}

func parseThinking(text string) (anthropic.Thinking, error) {
	tokens, err := strconv.Atoi(text)
	switch {
	case text == "":
		return anthropic.Thinking{}, nil
	case text == "adaptive":
		return anthropic.Thinking{Mode: anthropic.ThinkingAdaptive}, nil
	case text == "off":
		return anthropic.Thinking{Mode: anthropic.ThinkingOff}, nil
	case err != nil:
		return anthropic.Thinking{}, usage("unknown value %q in --thinking or kitbag.json; write adaptive, off, or a number of tokens such as 8000", text)
	}
	return anthropic.Thinking{Mode: anthropic.ThinkingBudget, Budget: tokens}, nil
}

// remedy returns what the user should check after a failed model call, or "". An error about a model or a key names the
// settings of one vendor; if there are models of several vendors, the remedy names the settings of all of them.
func (s *modelSettings) remedy(e *model.Error) string {
	var keyVars, urlVars []string
	for _, name := range s.names() {
		v := vendorOf(cmp.Or(s.api, os.Getenv("KITBAG_API")), name)
		if !slices.Contains(keyVars, v.keyVar) {
			keyVars, urlVars = append(keyVars, v.keyVar), append(urlVars, v.urlVar)
		}
	}
	urlSettings := strings.Join(urlVars, ", ") + " or --base-url"
	switch {
	case e.Kind == model.KindConnection:
		return "check that the server runs, and " + urlSettings
	case len(keyVars) > 1 && e.Status == http.StatusNotFound:
		return "check the model, KITBAG_MODEL or --model, and the server, " + urlSettings
	case len(keyVars) > 1 && e.Kind == model.KindAuthentication:
		return "check " + strings.Join(keyVars, " and ")
	}
	return ""
}

// modelKeys returns the API keys in the environment.
func modelKeys() (keys []string) {
	for _, v := range []*vendor{vendorOpenAI, vendorAnthropic} {
		if key := os.Getenv(v.keyVar); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// applyCatalog sets the window in cfg if it is not set, and the price of answers if cfg limits the cost. It returns the
// price; nil unless the prices of all models are known.
func (f *agentFlags) applyCatalog(cfg *agent.Config) (price func(model string, u message.Usage) float64, err error) {
	table, names := catalog.Default(), f.names()
	if f.modelsFile != "" {
		data, err := readSmall(f.modelsFile, os.Stat)
		var userTable *catalog.Table
		if err == nil {
			userTable, err = catalog.Parse(data)
		}
		if err != nil {
			return nil, fmt.Errorf("models in kitbag.json: %s: %w", f.modelsFile, err)
		}
		table = table.With(userTable)
	}
	cfg.Window.Tokens = cmp.Or(cfg.Window.Tokens, smallestWindow(table, names))
	for _, name := range slices.Backward(names) { // ends with the first model, whose price is for answers without a model's name
		price, err = table.Price(name)
		switch {
		case err != nil && cfg.Limits.Cost > 0:
			return nil, fmt.Errorf("--max-cost: %w; add the price to a file that kitbag.json names as models (kitbag run --help)", err)
		case err != nil:
			return nil, nil // without a limit the price may be unknown
		}
	}
	if cfg.Limits.Cost > 0 {
		cfg.Limits.Price = price
	}
	return price, nil
}

// smallestWindow returns the smallest known context window of the models, or 0.
func smallestWindow(table *catalog.Table, names []string) (smallest int) {
	for _, name := range names {
		if m, ok := table.Find(name); ok && m.Prompt() > 0 && (smallest == 0 || m.Prompt() < smallest) {
			smallest = m.Prompt()
		}
	}
	return smallest
}
