package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/e2e/released"
)

// compareQuotas describes how the quotas of both sides differ. It also reports whether Kubernetes
// changed its quotas since the last call.
func compareQuotas(upstream, ours Implementation) (difference string, changed bool, err error) {
	theirs, ok := upstream.(*quotaUpstream)
	if !ok {
		return "", false, nil
	}
	quotas, err := released.Quotas(theirs.client, theirs.lister)
	if err != nil {
		return "", false, err
	}
	own, err := ours.(*quotaOurs).known.List("")
	if err != nil {
		return "", false, err
	}
	got, want := showQuotas(own), showQuotas(quotas)
	if got != want {
		difference = fmt.Sprintf("got quotas\n%s, want\n%s", got, want)
	}
	changed = theirs.last != "" && theirs.last != want
	theirs.last = want
	return difference, changed, nil
}

// showQuotas shows the usage, with quantities as they are written.
func showQuotas(quotas []*corev1.ResourceQuota) string {
	var lines []string
	for _, q := range quotas {
		line := q.Namespace + "/" + q.Name
		for _, name := range slices.Sorted(maps.Keys(q.Status.Used)) {
			quantity := q.Status.Used[name]
			line += fmt.Sprintf(" %s=%s", name, quantity.String())
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// hasQuotas reports whether the world has quotas.
func (w *World) hasQuotas() bool {
	for _, object := range w.Objects {
		if _, ok := object.(*corev1.ResourceQuota); ok {
			return true
		}
	}
	return false
}

// quotaUpstream is upstream in a world with quotas.
type quotaUpstream struct {
	*upstream
	client kubernetes.Interface
	lister listers.ResourceQuotaLister
	last   string // the quotas at the last comparison
}

// quotaOurs is ours in a world with quotas.
type quotaOurs struct {
	*ours
	known *cluster.Objects[*corev1.ResourceQuota]
}
