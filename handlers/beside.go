package handlers

import (
	"context"
	"sync"
)

// A beside is what a handler does beside reviews. Chains that have the same handler
// share it.
type beside struct {
	run func(ctx context.Context, rulesChanged func())

	mu  sync.Mutex
	end context.CancelFunc // nil until it runs
}

func newBeside(run func(ctx context.Context, rulesChanged func())) *beside {
	if run == nil {
		return nil
	}
	return &beside{run: run}
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

// AwaitRules waits until it is known what handlers watch of which Rules may return
// others then, but not after ctx ends.
func (c *Chain) AwaitRules(ctx context.Context) {
	for i := range c.entries {
		if e := &c.entries[i]; e.beside != nil && e.view.Wait(ctx) != nil {
			return
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
	go b.run(ctx, rulesChanged)
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
