package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/registration"
	"github.com/fastadmit/fastadmit/internal/shadow"
)

// shadowed is what loads of a configuration have in common for the shadow. A nil *shadowed loads none.
type shadowed struct {
	set  *metrics.Set                    // for its plugins; nobody reads it
	last atomic.Pointer[admission.Chain] // of the shadow in use, nil if there is none
}

func newShadowed() *shadowed { return &shadowed{set: metrics.NewSet()} }

// A tried is what the shadow tries. A nil *tried is nothing.
type tried struct {
	*shadowed
	loaded           *config.Loaded
	log              *slog.Logger
	enabled          map[string]admission.Enabled
	added            []string // the plugins that are enabled in the shadow only
	changed, leftOut []string // see shadow.Config
}

// choose returns what the shadow tries. Plugins that call other servers, and those that count or write, are left out
// if they are the same as outside of the shadow: they were asked already. A change of the first ones is an error.
//
// A plugin is asked at the endpoint where it is asked outside of the shadow. One that is only in the shadow is asked
// where those with the failure policy Ignore are, see registered.
func (s *shadowed) choose(of *selection, live *config.Loaded, table []admission.Plugin, version admission.Version) (*tried, error) {
	if s == nil || live.Shadowed == nil {
		return nil, nil
	}
	t := &tried{shadowed: s, loaded: live.Shadowed, log: of.cluster.log}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.log = t.log.With("shadow", true)
	loaded := *live.Shadowed
	loaded.EnableAdmissionPlugins = slices.Concat(live.EnableAdmissionPlugins, live.Shadow.EnableAdmissionPlugins)
	t.enabled = of.enabled(&loaded, table, s.set)
	of.finish(t.enabled, version)
	isLive := of.enabled(live, table, nil)
	var errs []error
	for i := range table {
		p := &table[i]
		e, ok := t.enabled[p.Name]
		if !ok {
			continue
		}
		own, enabled := isLive[p.Name]
		changed := !enabled || live.Shadow.Changes(p.Name)
		switch {
		case changed && p.Calls:
			errs = append(errs, fmt.Errorf("shadow: %s cannot run there, because it calls other servers", p.Name))
			delete(t.enabled, p.Name)
			continue
		case !changed && (p.Calls || p.SideEffects != ""):
			t.leftOut = append(t.leftOut, p.Name)
			delete(t.enabled, p.Name)
			continue
		case changed:
			t.changed = append(t.changed, p.Name)
		}
		if e.Settings.FailurePolicy = own.Settings.FailurePolicy; !enabled {
			e.Settings.FailurePolicy = admissionregistrationv1.Ignore
			t.added = append(t.added, p.Name)
		}
		t.enabled[p.Name] = e
	}
	return t, errors.Join(errs...)
}

// registered returns the plugins that are enabled in the shadow only. kube-apiserver calls fastadmit for them, too, and
// goes on if it cannot. Plugins that do not know yet which reviews they handle come later.
func (t *tried) registered(c *shadow.Config) (plugins []registration.Plugin) {
	if t == nil {
		return nil
	}
	for _, p := range registered(c.Chain, slices.Concat(t.loaded.Plugins, t.loaded.Shadow.Plugins)) {
		if slices.Contains(t.added, p.Name) && c.Chain.KnowsRules(p.Name) {
			p.FailurePolicy = admissionregistrationv1.Ignore
			p.SideEffects = "" // nothing is written
			plugins = append(plugins, p)
		}
	}
	return plugins
}

// check returns the errors in the configurations of plugins.
func (t *tried) check(table []admission.Plugin) error {
	if t == nil {
		return nil
	}
	return t.locate(checkPlugins(table, t.enabled))
}

// locate adds the file and line to errors of plugins. Of others, it says that they are about the shadow.
func (t *tried) locate(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, err := range joined.Unwrap() {
			all = append(all, t.locate(err))
		}
		return errors.Join(all...)
	}
	located := t.loaded.Locate(err)
	if enable, ok := errors.AsType[*admission.EnableError](located); ok {
		return fmt.Errorf("shadow: %w", enable)
	}
	return located
}

// needs returns what the plugins read from the cluster. Nobody else waits for it.
func (t *tried) needs(table []admission.Plugin) []cluster.Need {
	if t == nil {
		return nil
	}
	all, _ := needed(table, t.enabled, t.loaded)
	for i := range all {
		all[i] = all[i].Aside()
	}
	return all
}

// config makes the plugins.
func (t *tried) config(table []admission.Plugin, state *cluster.State) (*shadow.Config, error) {
	if t == nil {
		return nil, nil
	}
	chain, err := admission.NewChain(shadow.Plugins(table, t.log, t.set), t.enabled, state, t.last.Load())
	if err != nil {
		return nil, t.locate(err)
	}
	return &shadow.Config{
		Chain: chain, Changed: t.changed, LeftOut: t.leftOut,
		ProcessorPercent: t.loaded.Shadow.ProcessorPercent, MemoryMax: t.loaded.Shadow.MaxMemoryBytes,
	}, nil
}

// start starts the background tasks of the plugins in the shadow, and ends those that are not in it any more. c may
// be nil. They call rulesChanged when they handle other reviews.
func (s *shadowed) start(ctx context.Context, c *shadow.Config, rulesChanged func()) {
	chain := new(admission.Chain)
	if c != nil {
		chain = c.Chain
	}
	chain.Start(ctx, s.last.Swap(chain), rulesChanged)
}
