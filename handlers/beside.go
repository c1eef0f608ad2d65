package handlers

import (
	"context"
	"sync"
)

// A beside is what a handler does beside reviews. Chains that have the same handler
// share it.
type beside struct {
	run func(ctx context.Context, rulesChanged func())

	known chan struct{} // closed when Rules is known for the first time

	mu  sync.Mutex
	end context.CancelFunc // nil until it runs
}

func newBeside(run func(ctx context.Context, rulesChanged func())) *beside {
	if run == nil {
		return nil
	}
	return &beside{run: run, known: make(chan struct{})}
}

// Start begins what the handlers do beside reviews (Handler.Run), as far as it did
// not begin yet, until ctx ends. What handlers do that only last has, which may be
// nil, ends. RulesChanged is called when what RulesOf returns changed.
func (c *Chain) Start(ctx context.Context, last *Chain, rulesChanged func()) {
	used := make(map[*beside]bool)
	for i := range c.entries {
		if b := c.entries[i].beside; b != nil {
			used[b] = true
			b.start(ctx, rulesChanged)
		}
	}
	if last == nil {
		return
	}
	for i := range last.entries {
		if b := last.entries[i].beside; b != nil && !used[b] {
			b.stop()
		}
	}
}

// RulesVary reports whether what RulesOf returns changes while a handler runs.
func (c *Chain) RulesVary() bool {
	for i := range c.entries {
		if c.entries[i].beside != nil {
			return true
		}
	}
	return false
}

// AwaitRules waits until all handlers that were started know which reviews they want,
// but not after ctx ends.
func (c *Chain) AwaitRules(ctx context.Context) {
	for i := range c.entries {
		if b := c.entries[i].beside; b != nil {
			select {
			case <-b.known:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (b *beside) start(ctx context.Context, rulesChanged func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil {
		return
	}
	ctx, b.end = context.WithCancel(ctx)
	first := sync.OnceFunc(func() { close(b.known) })
	go b.run(ctx, func() {
		first()
		rulesChanged()
	})
}

func (b *beside) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil {
		b.end()
	}
}

// RulesOf returns the rules of a plugin of the chain: which reviews are to be sent to
// it now.
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
