package oracle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/fastadmit/fastadmit/handlers/cluster"
)

// compareQuotas says how the quotas of both sides differ, and whether Kubernetes
// changed its own since it was asked last.
func compareQuotas(upstream, ours Implementation) (difference string, changed bool, err error) {
	theirs, ok := upstream.(*quotaUpstream)
	if !ok {
		return "", false, nil
	}
	quotas, err := theirs.quotas()
	if err != nil {
		return "", false, err
	}
	got, want := showQuotas(ours.(*quotaOurs).known.List("")), showQuotas(quotas)
	if got != want {
		difference = fmt.Sprintf("got quotas\n%s, want\n%s", got, want)
	}
	changed = theirs.last != "" && theirs.last != want
	theirs.last = want
	return difference, changed, nil
}

// showQuotas shows what is used, with quantities as they are written.
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

// hasQuotas says whether there are any in the world.
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
	last   string // what the quotas were when they were compared last
}

// quotas returns what there is, after the plugin has heard of it.
func (u *quotaUpstream) quotas() ([]*corev1.ResourceQuota, error) {
	list, err := u.client.CoreV1().ResourceQuotas("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var quotas []*corev1.ResourceQuota
	for i := range list.Items {
		want := &list.Items[i]
		quotas = append(quotas, want)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Microsecond) {
			got, err := u.lister.ResourceQuotas(want.Namespace).Get(want.Name)
			if err == nil && equality.Semantic.DeepEqual(got.Status, want.Status) {
				break
			}
			if time.Now().After(deadline) {
				return nil, errors.Join(errors.New("the informer does not hear of a quota"), err)
			}
		}
	}
	return quotas, nil
}

// quotaOurs is ours in a world with quotas.
type quotaOurs struct {
	*ours
	known *cluster.Objects[*corev1.ResourceQuota]
}
