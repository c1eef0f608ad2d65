package shadow

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/compare"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// A worker reviews one job after the other.
type worker struct {
	*Shadow
	trial    *Trial // of the reviewer
	reviewer *compare.Reviewer
	isStuck  bool // or was: another worker has gone on
}

// run reviews the jobs of the queue until stop is called. If a plugin ends the goroutine, another one goes on.
func (s *Shadow) run() {
	returned := false
	w := &worker{Shadow: s}
	defer func() {
		switch {
		case w.isStuck:
		case !returned:
			go s.run()
		default:
			close(s.ended)
		}
	}()
	for !w.isStuck {
		select {
		case j := <-s.queue:
			percent := j.trial.ProcessorPercent // before j is released
			if took := w.take(j); !w.isStuck {
				returned = !s.rest(percent, took)
			}
		case <-s.ctx.Done():
			returned = true
		}
		if returned {
			return
		}
	}
}

// rest waits so long after work that the work is the given part of the time. It returns false if the Shadow ends.
func (s *Shadow) rest(percent int64, worked time.Duration) bool {
	pause := worked * time.Duration(100-percent) / time.Duration(percent)
	if pause == 0 {
		return s.ctx.Err() == nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// take reviews a job and counts the differences. It returns how long that took. After a panic, the review
// is skipped.
func (w *worker) take(j job) time.Duration {
	begin := time.Now()
	t, bytes := j.trial, j.Bytes()
	timer := w.watch(t, bytes)
	why := skippedPanic // if review does not return
	defer func() {
		if v := recover(); v != nil {
			w.o.Log.Error("the shadow panicked", "panic", admission.PanicText(v), "stack", string(debug.Stack()))
		}
		if why == skippedPanic {
			w.trial = nil
		}
		j.Release()
		if w.isStuck = !w.unwatch(timer, t); w.isStuck {
			w.o.Log.Info("a plugin of the shadow has returned from a review", "after", time.Since(begin).String())
			return
		}
		w.queued.Add(-bytes)
		if why != notSkipped {
			w.counted.Load().skip(t, why)
		}
	}()
	var err error
	if why, err = w.review(j); err != nil {
		w.o.Log.Warn("the shadow cannot compare a review", "error", err.Error())
	}
	return time.Since(begin)
}

// review reviews a job and counts the differences, unless the review is skipped.
func (w *worker) review(j job) (why reason, err error) {
	t := j.trial
	switch {
	case t != w.current.Load():
		return skippedReload, nil
	case t.isStopped():
		return skippedStuck, nil
	case w.o.Busy():
		return skippedLoad, nil
	}
	needs := w.o.MemoryOf(j.Body)
	if needs > t.reviewMax {
		return skippedMemory, nil
	}
	j.Review = j.Response
	before, err := compare.Recorded(&j.Answer, false)
	if err != nil {
		return skippedError, err
	}
	if slices.ContainsFunc(t.LeftOut, func(name string) bool {
		return before.Plugin == name || isOf(name, before.Message) || slices.Contains(before.Annotated, name)
	}) {
		return skippedLeftOut, nil
	}
	if w.trial != t {
		w.trial, w.reviewer = t, compare.NewReviewer(t.Chain, w.observe)
	}
	ctx, cancel := context.WithTimeout(w.ctx, reviewMax)
	defer cancel()
	c := newCall(ctx, w.o.Turns, t.reviewMax-needs)
	defer c.work.Leave()
	d := described{endpoint: j.Endpoint}
	after, err := w.reviewer.Ask(c, j.Body, j.Endpoint, d.describe)
	switch {
	case errors.Is(err, codec.ErrNoMemory) || c.refused.Load():
		return skippedMemory, nil
	case ctx.Err() != nil:
		return skippedTime, nil
	case err != nil:
		return skippedError, err
	}
	all, err := compare.Outcomes(before, after, func() ([]byte, error) { return compare.Patches(j.Body, before.Patch, after.Patch) })
	if err != nil {
		return skippedError, fmt.Errorf("cannot compare the stored objects: %w", err)
	}
	w.count(t, &d, before, after, all)
	return notSkipped, nil
}

// observe logs and counts failures of plugins.
func (w *worker) observe(plugin string, run *admission.Run) {
	if run.Err == nil {
		return
	}
	w.counted.Load().fail(plugin)
	if panicked, ok := errors.AsType[*admission.PanicError](run.Err); ok {
		w.o.Log.Error("plugin panicked in the shadow", "plugin", plugin, "phase", run.Phase.String(),
			"panic", admission.PanicText(panicked.Value), "stack", string(panicked.Stack))
		return
	}
	w.o.Log.Warn("plugin failed in the shadow", "plugin", plugin, "phase", run.Phase.String(), "error", run.Err.Error())
}

// user is the name under which requests of the shadow to kube-apiserver, and its work, wait for their turn. They
// are those of one caller.
const user = "fastadmit:shadow"

// A call is the context of a review in the shadow.
type call struct {
	context.Context
	work    turns.Work
	left    atomic.Int64 // bytes that may still be used
	values  int64        // bytes of expressions
	refused atomic.Bool
}

func newCall(ctx context.Context, all *turns.Turns, left int64) *call {
	c := &call{Context: ctx}
	c.work = all.Begin(c)
	c.left.Store(left)
	return c
}

// Value implements context.Context.
func (c *call) Value(key any) any {
	switch key.(type) {
	case cluster.CallerKey, codec.MemoryKey, codec.LenderKey:
		return c
	case turns.Key, codec.PacerKey:
		return &c.work
	}
	return c.Context.Value(key)
}

// Requester implements cluster.Requester.
func (c *call) Requester() (name, namespace string) { return user, "" }

// Leave gives the turn back, before the call waits for the API server.
func (c *call) Leave() { c.work.Leave() }

// GrantMemory implements codec.MemoryGranter. The memory was counted before the review.
func (c *call) GrantMemory() bool { return true }

// GrantValues implements codec.MemoryGranter.
func (c *call) GrantValues(bytes int) bool {
	more := int64(bytes) - c.values
	if more <= 0 {
		return true
	}
	if !c.reserve(more) {
		return false
	}
	c.values = int64(bytes)
	return true
}

// Lend implements codec.MemoryLender. It does not wait.
func (c *call) Lend(_ context.Context, n int64, _ bool) (giveBack func(), ok bool) {
	if !c.reserve(n) {
		return func() {}, false
	}
	return func() { c.left.Add(n) }, true
}

// Keep implements codec.MemoryLender.
func (c *call) Keep(n int64) bool { return c.reserve(n) }

func (c *call) reserve(n int64) bool {
	if c.left.Add(-n) >= 0 {
		return true
	}
	c.left.Add(n)
	c.refused.Store(true)
	return false
}

// described says which review a difference is about.
type described struct {
	uid, operation, resource, namespace, name, user, endpoint string
	isSecret                                                  bool
}

func (d *described) describe(review *codec.Review) {
	clone := func(text string) string { return strings.Clone(codec.TruncateString(text, nameBytesMax)) }
	of := review.Resource()
	d.uid, d.operation, d.user = clone(review.UID()), clone(string(review.Operation())), clone(review.Username())
	d.namespace, d.name = clone(review.Namespace()), clone(review.Name())
	if prefix := review.Object.Get("metadata", "generateName").String(); d.name == "" && prefix != "" {
		d.name = clone(prefix) + "*"
	}
	d.resource, d.isSecret = clone(of.Resource), of.Group == "" && of.Resource == "secrets"
	if of.Group != "" {
		d.resource += "." + clone(of.Group)
	}
	if sub := review.SubResource(); sub != "" {
		d.resource += "/" + clone(sub)
	}
}
