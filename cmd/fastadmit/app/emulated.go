package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/printable"
	"github.com/fastadmit/fastadmit/internal/server"
	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	// emulatedInterval is how often the API server is asked for its version.
	emulatedInterval = 10 * time.Second

	// emulatedAgreeMin is how many answers in a row must name a newer version: while a control
	// plane is upgraded, its API servers have two versions. Which of them answers may be left to chance: if
	// two of three are newer, so many do in a row once in 200,000 times.
	emulatedAgreeMin = 30
)

const emulatedUsage = "minor release of Kubernetes to behave as, as 1.34; if empty, that of the API server, or the newest without one"

// emulated is the release of Kubernetes as which plugins behave.
type emulated struct {
	flag    string
	inUse   atomic.Pointer[admission.Version] // nil before the first plugins are made
	changed wake.Signal                       // the version of the API server has changed
	log     *slog.Logger
	cmd     *cobra.Command // whose standard error gets warnings if there is no log; nil for none

	mu sync.Mutex // for the following fields
	// own is true if the flag or the configuration file names the version.
	own   bool
	asker *cluster.VersionAsker // nil without an API server

	// answered is the version of the API server. pending is a newer one that the last answers
	// name; newer is the number of these answers.
	answered, pending admission.Version
	newer             int
	warned            string // the last warning
}

// choose returns the version for plugins that are made now: that of the flag, of the configuration
// file, or of the API server.
func (e *emulated) choose(ctx context.Context, file string, c *knownCluster) (v admission.Version, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	given, about := e.flag, "--emulated-version"
	if given == "" {
		given, about = file, "emulatedVersion"
	}
	if e.own = given != ""; e.own {
		if v, err = e.parse(ctx, given); err != nil {
			return v, fmt.Errorf("%s: %w", about, err)
		}
	} else {
		if e.asker == nil {
			e.connect(ctx, c)
		}
		v = e.answered
	}
	return v, nil
}

// current returns the version of the plugins that are used now.
func (e *emulated) current() admission.Version {
	if v := e.inUse.Load(); v != nil {
		return *v
	}
	return admission.Newest()
}

// connect creates the asker and asks once. Without an API server, the version is the newest one.
func (e *emulated) connect(ctx context.Context, c *knownCluster) {
	if c.dir != "" || c.imagined && c.kubeconfig == "" {
		return
	}
	config, err := cluster.RESTConfig(c.kubeconfig, c.context)
	if err != nil {
		return // plugins that need the API server report the error
	}
	config.UserAgent = c.agent()
	if e.asker, err = cluster.NewVersionAsker(config); err != nil {
		e.warn(ctx, "cannot ask the API server for its version", err.Error())
		return
	}
	if v, err := e.ask(ctx); err != nil {
		e.warn(ctx, "the newest version is emulated until the API server names its own", err.Error())
	} else {
		e.answered = v
	}
}

// ask asks the API server for its version.
func (e *emulated) ask(ctx context.Context) (admission.Version, error) {
	text, err := e.asker.Ask(ctx)
	if err != nil {
		return admission.Version{}, err
	}
	return e.parse(ctx, text)
}

// parse parses a version. It warns once of a version that cannot be emulated.
func (e *emulated) parse(ctx context.Context, text string) (admission.Version, error) {
	v, known, err := admission.ParseVersion(text)
	if err == nil && !known {
		e.warn(ctx, "Kubernetes "+text+" cannot be emulated", "the closest version that can be is "+v.String())
	}
	return v, err
}

func (e *emulated) warn(ctx context.Context, message, reason string) {
	switch {
	case e.warned == message:
	case e.log != nil:
		e.log.WarnContext(ctx, message, "reason", reason)
	case e.cmd != nil:
		fmt.Fprintf(e.cmd.ErrOrStderr(), "fastadmit: warning: %s: %s\n", printable.Plain(message), printable.Plain(reason))
	}
	e.warned = message
}

// start follows the version of the API server until ctx ends.
func (e *emulated) start(ctx context.Context, set *metrics.Set) {
	set.NewGauge("fastadmit_emulated_version_minor", func() float64 { return float64(e.current().Minor()) })
	e.log.InfoContext(ctx, "behaving as a release of Kubernetes", "version", e.current().String())
	go func() {
		ticks := time.NewTicker(emulatedInterval)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			e.follow(ctx)
		}
	}()
}

// follow asks the API server for its version, unless the flag or the configuration file names one.
func (e *emulated) follow(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.own || e.asker == nil {
		return
	}
	if v, err := e.ask(ctx); err == nil && e.hear(v) {
		e.log.InfoContext(ctx, "the API server has another version", "version", v.String())
		e.changed.Send()
	}
}

// hear processes an answer of the API server, and reports whether the version changed. It changes to an
// older version at once, and to a newer one after enough answers.
func (e *emulated) hear(v admission.Version) (changed bool) {
	switch {
	case v == e.answered:
		e.newer = 0
		return false
	case e.answered.AtLeast(1, v.Minor()): // an older one
	case e.newer == 0 || e.pending != v:
		e.pending, e.newer = v, 1
		return false
	default:
		if e.newer++; e.newer < emulatedAgreeMin {
			return false
		}
	}
	e.answered, e.newer = v, 0
	return true
}

// check is a check of /readyz, which shows the version and does not fail.
func (e *emulated) check() server.Check {
	return server.Check{Name: "version", Ask: func() (bool, string) { return true, e.current().String() }}
}
