// Package defaulttolerationseconds is the admission plugin
// DefaultTolerationSeconds.
//
// It lets every pod stay for some minutes on a node that is not ready or unreachable, unless
// the pod sets the time itself. Without it, pods are evicted as soon as their node is
// tainted: a network failure of a minute would move all pods behind it.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/defaulttolerationseconds.
package defaulttolerationseconds

import (
	"context"
	"fmt"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// The taints of nodes that the plugin adds tolerations for, and their effect
// (k8s.io/api/core/v1 well_known_taints.go).
const (
	taintNotReady    = "node.kubernetes.io/not-ready"
	taintUnreachable = "node.kubernetes.io/unreachable"
	effectNoExecute  = "NoExecute"
)

// Options are flags of kube-apiserver. As there, negative numbers are allowed; like zero,
// they evict at once.
type Options struct {
	// NotReadyTolerationSeconds is the flag
	// --default-not-ready-toleration-seconds.
	NotReadyTolerationSeconds int64
	// UnreachableTolerationSeconds is the flag
	// --default-unreachable-toleration-seconds.
	UnreachableTolerationSeconds int64
}

// DefaultOptions returns kube-apiserver's defaults: five minutes each.
func DefaultOptions() Options {
	return Options{NotReadyTolerationSeconds: 300, UnreachableTolerationSeconds: 300}
}

// Plugin returns the plugin, for the table of package handlers.
func Plugin(options Options) admission.Plugin {
	return admission.Plugin{
		Name:        "DefaultTolerationSeconds",
		Summary:     "lets pods stay for a while, by default five minutes, on a node that is not ready or unreachable",
		Rules:       []admission.Rule{admission.CreateUpdate("pods")},
		Mutates:     true,
		OnByDefault: true,
		New: func(admission.Setup) (admission.Handler, error) {
			t := tolerations{
				notReady:    toleration(taintNotReady, options.NotReadyTolerationSeconds),
				unreachable: toleration(taintUnreachable, options.UnreachableTolerationSeconds),
			}
			return admission.Handler{Admit: t.admit}, nil
		},
	}
}

// tolerations are those to add, as JSON.
type tolerations struct{ notReady, unreachable string }

func toleration(key string, seconds int64) string {
	return fmt.Sprintf(`{"key":%q,"operator":"Exists","effect":%q,"tolerationSeconds":%d}`, key, effectNoExecute, seconds)
}

// admit adds a toleration for each taint for which the pod has none. As upstream, it
// compares only key and effect, not the operator or the value.
func (t *tolerations) admit(_ context.Context, review *codec.Review) admission.Result {
	var notReady, unreachable bool
	for _, has := range review.Object.Get("spec", "tolerations").Elements() {
		if effect := has.Get("effect").String(); effect != "" && effect != effectNoExecute {
			continue
		}
		key := has.Get("key").String()
		notReady = notReady || key == "" || key == taintNotReady
		unreachable = unreachable || key == "" || key == taintUnreachable
	}
	if notReady && unreachable {
		return admission.Allowed()
	}
	if !notReady {
		review.Object.Append(t.notReady, "spec", "tolerations")
	}
	if !unreachable {
		review.Object.Append(t.unreachable, "spec", "tolerations")
	}
	return admission.Allowed()
}
