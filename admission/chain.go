package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Phase is the phase of admission that an endpoint serves.
type Phase uint8

// The phases, in their order (Kubernetes, "Admission Control Phases").
const (
	Mutate Phase = iota
	Validate
)

func (p Phase) String() string {
	if p == Mutate {
		return "mutate"
	}
	return "validate"
}

// Outcome is the result of a plugin's run, or of a review.
type Outcome uint8

// The outcomes.
const (
	OutcomeAllowed  Outcome = iota
	OutcomePatched          // allowed, and the object changed
	OutcomeDenied           // the plugin denied
	OutcomeWarned           // a denial that is enforced as a warning
	OutcomeAudited          // a denial that is enforced as an audit annotation
	OutcomeErrored          // the plugin could not decide, broke its contract, or took too long
	OutcomePanicked         // the plugin panicked
	outcomeCount
)

// Outcomes lists all outcomes.
func Outcomes() []Outcome {
	all := make([]Outcome, outcomeCount)
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

func (o Outcome) String() string {
	return [...]string{"allowed", "patched", "denied", "warned", "audited", "errored", "panicked"}[o]
}

// Run describes a plugin's run, for Chain.Observe.
type Run struct {
	Context context.Context // of the review, also if the plugin has a timeout of its own
	Plugin  int             // the index of the plugin in the chain that NewChain returned
	Phase   Phase
	Outcome Outcome
	Elapsed time.Duration
	Err     error // the reason, for OutcomeErrored and OutcomePanicked
	// Unchecked is that of the plugin's Result.
	Unchecked string
}

// Chain runs enabled plugins in the order of the table. Several goroutines may use it
// at the same time.
type Chain struct {
	entries []entry
	pods    *podReviewer // nil if no plugin checks the Pods of workloads
	// exceptions are those of the plugin that knows some, nil if none does.
	exceptions Exceptions
	// Observe, if set before the first use, is called after each run of a
	// plugin.
	Observe func(Run)
	// Unselected, if set before the first use, is called with the index of a plugin whose rules select the review and whose
	// Settings.Selector does not.
	Unselected func(plugin int)
	// Explain, if set before the first use, is called for each plugin of the phase, also if the
	// plugin is not asked. It makes reviews many times slower, and is for people who ask about one
	// review. The Explanation may be retained.
	Explain func(*Explanation)
}

type entry struct {
	Enabled
	plugin     *Plugin
	index      int // in the chain that NewChain made
	handler    Handler
	view       *cluster.View // what the handler reads from the cluster
	background *background   // nil if the handler has no Run
}

// Enabled is the configuration of a plugin in a chain.
type Enabled struct {
	// Config is the plugin's own configuration file, nil for none.
	Config []byte
	// Manifests are the files of the folder that Config names.
	Manifests []File
	// Params are objects that policies in Manifests may use as parameters.
	Params []ParamKind
	// Kubeconfig is the kubeconfig file that Config names, see Setup.
	Kubeconfig []byte
	// InterpretCEL makes cel-go's interpreter evaluate all CEL expressions, see Setup.
	InterpretCEL bool
	// Version is the release of Kubernetes whose behavior the plugin has, see Setup.
	Version Version
	// Metrics is the set for the plugin's own metrics, nil for none.
	Metrics  *metrics.Set
	Settings Settings
}

// isSame reports whether a handler for e can be used for other.
func (e *Enabled) isSame(other *Enabled) bool {
	if e.Params != nil || other.Params != nil {
		return false
	}
	return bytes.Equal(e.Config, other.Config) && bytes.Equal(e.Kubeconfig, other.Kubeconfig) && e.InterpretCEL == other.InterpretCEL &&
		e.Version == other.Version &&
		slices.EqualFunc(e.Manifests, other.Manifests, func(a, b File) bool {
			return a.Name == b.Name && a.FromAPI == b.FromAPI && bytes.Equal(a.Content, b.Content)
		})
}

// pluginsMax is the maximum number of plugins in a chain: several times as many as
// kube-apiserver ever had.
const pluginsMax = 128

// NewChain creates a chain of the enabled plugins, in the order of the table. Names
// that are not in the table are ignored. The error joins an *EnableError for each
// plugin that cannot be enabled. state watches the objects that the plugins need;
// it may be nil if they need none.
//
// A plugin of last with the same Config, Manifests and Kubeconfig keeps its handler
// and its state. last may be nil, and must use the same cluster state.
func NewChain(table []Plugin, enabled map[string]Enabled, state *cluster.State, last *Chain) (*Chain, error) {
	if len(table) > pluginsMax {
		return nil, fmt.Errorf("got %d plugins, want at most %d", len(table), pluginsMax)
	}
	c := new(Chain)
	var errs []error
	for i := range table {
		plugin := &table[i]
		e, ok := enabled[plugin.Name]
		if !ok {
			continue
		}
		var view *cluster.View
		needs := plugin.AllNeeds(e.Config)
		if state != nil && len(needs) > 0 {
			view = state.View(needs...).For(plugin.Name)
		}
		handler, background, err := newHandler(plugin, e, view, last)
		if err != nil {
			errs = append(errs, &EnableError{Plugin: plugin.Name, Err: err, Unconfigured: plugin.RequiresConfig && e.Config == nil})
			continue
		}
		c.entries = append(c.entries,
			entry{Enabled: e, plugin: plugin, index: len(c.entries), handler: handler, view: view, background: background})
		if handler.Exceptions != nil {
			c.exceptions = handler.Exceptions
		}
	}
	c.pods = newPodReviewer(c.entries)
	if errs == nil {
		c.tellExceptions()
	}
	return c, errors.Join(errs...)
}

// EnableError is the reason why a plugin cannot be enabled, for example an invalid
// configuration file.
type EnableError struct {
	Plugin string
	Err    error
	// Unconfigured is true if the plugin needs a configuration file, and has none.
	Unconfigured bool
}

func (e *EnableError) Error() string {
	if e.Unconfigured {
		return fmt.Sprintf("cannot enable plugin %s: it has no configuration, which --admission-control-config-file would name: %v",
			e.Plugin, e.Err)
	}
	return fmt.Sprintf("cannot enable plugin %s: %v", e.Plugin, e.Err)
}

func (e *EnableError) Unwrap() error { return e.Err }

func newHandler(plugin *Plugin, e Enabled, view *cluster.View, last *Chain) (Handler, *background, error) {
	if !codec.IsAnnotationKey(plugin.Name) {
		return Handler{}, nil, errors.New("its name cannot be used in paths and audit annotations: " +
			"want at most 63 of [-A-Za-z0-9_.], alphanumeric at both ends")
	}
	if err := e.Settings.check(); err != nil {
		return Handler{}, nil, err
	}
	if err := plugin.checkWorkloadPods(&e.Settings); err != nil {
		return Handler{}, nil, err
	}
	if same := last.find(plugin.Name); same != nil && same.isSame(&e) {
		return same.handler, same.background, nil
	}
	if view == nil && len(plugin.AllNeeds(e.Config)) > 0 {
		return Handler{}, nil, errors.New("it needs access to a cluster, and none is configured")
	}
	series := e.Metrics
	if series == nil {
		series = metrics.NewSet()
	}
	handler, err := plugin.New(Setup{
		Config: e.Config, Manifests: e.Manifests, Params: e.Params, Kubeconfig: e.Kubeconfig,
		InterpretCEL: e.InterpretCEL, Version: e.Version, Metrics: series, Cluster: view,
	})
	if err != nil {
		return Handler{}, nil, err
	}
	if (handler.Admit != nil) != plugin.Mutates || (handler.Validate != nil) != plugin.Validates {
		return Handler{}, nil, fmt.Errorf("its handler has Admit: %t, Validate: %t, but the plugin declares Mutates: %t, Validates: %t",
			handler.Admit != nil, handler.Validate != nil, plugin.Mutates, plugin.Validates)
	}
	return handler, newBackground(handler.Run), nil
}

// find returns the entry of the plugin with that name, nil if there is none.
func (c *Chain) find(name string) *entry {
	if c == nil {
		return nil
	}
	for i := range c.entries {
		if c.entries[i].plugin.Name == name {
			return &c.entries[i]
		}
	}
	return nil
}

// Plugins returns the plugins of the chain in order.
func (c *Chain) Plugins() []*Plugin {
	plugins := make([]*Plugin, len(c.entries))
	for i := range c.entries {
		plugins[i] = c.entries[i].plugin
	}
	return plugins
}

// Each calls f with each plugin of the chain and its settings, in their order.
func (c *Chain) Each(f func(*Plugin, *Settings)) {
	for i := range c.entries {
		f(c.entries[i].plugin, &c.entries[i].Settings)
	}
}

// Select returns a chain of the plugins for which keep returns true, in the same
// order. Both chains share the handlers and their state.
func (c *Chain) Select(keep func(*Plugin, *Settings) bool) *Chain {
	selected := &Chain{Observe: c.Observe, Unselected: c.Unselected, Explain: c.Explain, exceptions: c.exceptions}
	for i := range c.entries {
		if e := &c.entries[i]; keep(e.plugin, &e.Settings) {
			selected.entries = append(selected.entries, *e)
			if e.Settings.ChecksWorkloads() {
				selected.pods = c.pods
			}
		}
	}
	return selected
}
