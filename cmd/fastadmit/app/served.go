package app

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/registration"
	"github.com/fastadmit/fastadmit/internal/server"
	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	// servedInterval is how often fastadmit asks the API server which resources it serves. They
	// change with an upgrade, which takes longer.
	servedInterval = 10 * time.Minute

	// servedMax is how long these requests may take: there are some ten.
	servedMax = time.Minute
)

// servedCheck finds out whether the API server serves the resources that the rules of the
// plugins name. If it serves them only in other versions, their requests pass without a review
// and without an error.
type servedCheck struct {
	cluster *knownCluster
	log     *slog.Logger
	changed wake.Signal // sent when the plugins change
	about   atomic.Pointer[string]
	passes  atomic.Int64 // the number of resources whose requests pass without the plugins that are for them
}

func newServedCheck(c *knownCluster, log *slog.Logger, set *metrics.Set) *servedCheck {
	s := &servedCheck{cluster: c, log: log, changed: wake.NewSignal()}
	set.NewGauge("fastadmit_unserved_rules", func() float64 { return float64(s.passes.Load()) })
	return s
}

// check is a check of /readyz, which does not fail: the operator cannot do more than upgrade.
func (s *servedCheck) check() server.Check {
	return server.Check{Name: "rules", Ask: func() (bool, string) {
		if about := s.about.Load(); about != nil {
			return true, *about
		}
		return true, ""
	}}
}

// start asks in the background, now, after changes, and each servedInterval, until ctx ends. It
// asks nothing without an API server.
func (s *servedCheck) start(ctx context.Context, plugins func() []*admission.Plugin) error {
	if s.cluster.state.Load() == nil || s.cluster.dir != "" {
		return nil
	}
	need := cluster.Discovered()
	if err := s.cluster.follow(ctx, []cluster.Need{need}, nil); err != nil {
		return err
	}
	discovery := cluster.DiscoveryIn(s.cluster.state.Load().View(need).For("rules"))
	go func() {
		for {
			s.ask(ctx, discovery, plugins())
			if !s.changed.Wait(ctx, servedInterval, 0) {
				return
			}
		}
	}()
	return nil
}

// ask sends the requests once, and logs the findings if they changed.
func (s *servedCheck) ask(ctx context.Context, d registration.Discovery, plugins []*admission.Plugin) {
	ctx, cancel := context.WithTimeout(ctx, servedMax)
	defer cancel()
	found, err := registration.FindUnserved(ctx, d, plugins)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("cannot find out which resources are served", "error", err.Error())
		}
		return
	}
	var lines []string
	passes := int64(0)
	for _, u := range found {
		lines = append(lines, fmt.Sprintf("plugin %s: %s", u.Plugin, u.About))
		if u.Passes {
			passes++
		}
	}
	s.passes.Store(passes)
	about := strings.Join(lines, "\n")
	if before := s.about.Swap(&about); before != nil && *before == about {
		return
	}
	for _, u := range found {
		level := slog.LevelWarn
		if !u.Passes && isOnByDefault(plugins, u.Plugin) { // the rule is for a feature that the cluster lacks
			level = slog.LevelInfo
		}
		s.log.Log(ctx, level, "the API server does not serve what the rules of a plugin name", "plugin", u.Plugin, "reason", u.About)
	}
}

func isOnByDefault(plugins []*admission.Plugin, name string) bool {
	for _, p := range plugins {
		if p.Name == name {
			return p.OnByDefault
		}
	}
	return false
}
