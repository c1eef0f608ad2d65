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
	// servedInterval is how often the API server is asked which resources it serves: an upgrade,
	// after which it serves others, takes longer.
	servedInterval = 10 * time.Minute

	// servedMax is how long that may take: there are some ten requests.
	servedMax = time.Minute
)

// servedCheck finds out whether the API server serves what the rules of the plugins name. Requests
// for other versions pass without a sound.
type servedCheck struct {
	cluster *knownCluster
	log     *slog.Logger
	changed wake.Signal // the plugins are others
	about   atomic.Pointer[string]
	passes  atomic.Int64 // how many resources no plugin gets that it is for
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

// ask asks once, and logs what is new.
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
		if !u.Passes && isOnByDefault(plugins, u.Plugin) { // for a feature that the cluster does not have
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
