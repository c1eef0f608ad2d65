package admission

import (
	"context"
	"sync"
)

// A background is the background task of a handler (Handler.Run). Chains with the same
// handler share it.
type background struct {
	run func(ctx context.Context, rulesChanged func())

	rulesKnown chan struct{} // closed when Rules is known for the first time

	mu     sync.Mutex
	cancel context.CancelFunc // nil until the task is started
	ended  chan struct{}      // closed when run has returned
}

func newBackground(run func(ctx context.Context, rulesChanged func())) *background {
	if run == nil {
		return nil
	}
	return &background{run: run, rulesKnown: make(chan struct{})}
}

// Start starts the background tasks of the handlers (Handler.Run) that do not run
// yet; they run until ctx ends. It stops tasks of handlers that are only in last,
// which may be nil. It calls rulesChanged when the result of RulesOf changes.
func (c *Chain) Start(ctx context.Context, last *Chain, rulesChanged func()) {
	used := make(map[*background]bool)
	for i := range c.entries {
		if b := c.entries[i].background; b != nil {
			used[b] = true
			b.start(ctx, rulesChanged)
		}
	}
	if last == nil {
		return
	}
	for i := range last.entries {
		if b := last.entries[i].background; b != nil && !used[b] {
			b.stop()
		}
	}
}

// RulesVary reports whether the result of RulesOf changes while a handler runs.
func (c *Chain) RulesVary() bool {
	for i := range c.entries {
		if c.entries[i].background != nil {
			return true
		}
	}
	return false
}

// KnowsRules reports whether a plugin of the chain knows which reviews it handles.
func (c *Chain) KnowsRules(plugin string) bool {
	e := c.find(plugin)
	if e == nil || e.background == nil {
		return true
	}
	select {
	case <-e.background.rulesKnown:
		return true
	default:
		return false
	}
}

// AwaitRules waits until all started handlers know which reviews they handle, or
// ctx ends.
func (c *Chain) AwaitRules(ctx context.Context) {
	for i := range c.entries {
		if b := c.entries[i].background; b != nil {
			select {
			case <-b.rulesKnown:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (b *background) start(ctx context.Context, rulesChanged func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		return
	}
	ctx, b.cancel = context.WithCancel(ctx)
	b.ended = make(chan struct{})
	first := sync.OnceFunc(func() { close(b.rulesKnown) })
	go func() {
		defer close(b.ended)
		b.run(ctx, func() {
			first()
			rulesChanged()
		})
	}()
}

// Stop ends the background tasks of all handlers, and waits until they have returned or
// ctx ends.
func (c *Chain) Stop(ctx context.Context) {
	var all []<-chan struct{}
	for i := range c.entries {
		if b := c.entries[i].background; b != nil {
			if ended := b.stop(); ended != nil {
				all = append(all, ended)
			}
		}
	}
	for _, ended := range all {
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// stop ends the task. The channel is closed when it has returned; it is nil if the task
// was never started.
func (b *background) stop() (ended <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
	return b.ended
}

// RulesOf returns the rules for the reviews that a plugin of the chain handles at
// the moment.
func (c *Chain) RulesOf(plugin string) []Rule {
	e := c.find(plugin)
	switch {
	case e == nil:
		return nil
	case e.handler.Rules == nil:
		return e.plugin.Rules
	}
	return e.handler.Rules()
}
