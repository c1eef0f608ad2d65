package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const (
	teamDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: teams.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: teams, singular: team, kind: Team, listKind: TeamList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
	team = `apiVersion: example.com/v1
kind: Team
metadata: {name: red}
spec: {costCenter: "%s"}
`
	defaultTeam = `apiVersion: v1
kind: ConfigMap
metadata: {name: team, namespace: shop}
data: {default: red}
`
)

// extraPlugins installs a binary with custom plugins by the chart. The values are those that the
// binary prints, and the rules only those that follow from them. One plugin reads a ConfigMap and a
// custom resource. The CRD is created after the plugin.
func (s *stand) extraPlugins(t *testing.T) {
	s.awaitNoNamespace(t)
	binary := cluster.Built("example")
	s.startNode(t, binary)
	admin := walkthrough.New(t, s.kubeconfig)
	admin.Values(t, "shutdownDelaySeconds: 2\nshutdownIdleSeconds: 0\nplugins: {NamespaceCreator: {}}\n")
	admin.Does(t, "my-fastadmit plugins -o chart")
	values := walkthrough.Run(t, nil, binary, "plugins", "-o", "chart") + "plugins: {TeamLabel: {}, NamespaceCreator: {}}\n"
	// The chart's hook would wait until the pods are ready, which they are not without the CRD.
	s.helm(t, "upgrade", "--install", "fastadmit", chart, "--no-hooks", "--create-namespace", "--values",
		cluster.WriteFile(t, "values.yaml", []byte(values)))
	cluster.Await(t, "a pod that says what it waits for", func() error {
		return s.saysReady("cluster state: teams.example.com, needed by TeamLabel, are not known yet: " +
			"the API server does not have the resource teams of example.com/v1")
	})
	s.MustKubectl(t, teamDefinition, "create", "-f", "-")
	s.AwaitCRDs(t, "teams.example.com")
	s.MustKubectl(t, fmt.Sprintf(team, "4711")+"---\n"+defaultTeam, "apply", "-f", "-")
	cluster.Await(t, "the team of the namespace", func() error { return s.getsCostCenter("shop", "4711") })
	cluster.Await(t, "a denial where there is none", func() error {
		return cluster.WantError(s.getsCostCenter("default", ""), `metadata.labels[team]: got "", want the name of a Team`)
	})
	s.MustKubectl(t, fmt.Sprintf(team, "0815"), "apply", "-f", "-")
	cluster.Await(t, "the changed team", func() error { return s.getsCostCenter("shop", "0815") })
	s.MustKubectl(t, "", "delete", "team", "red")
	cluster.Await(t, "a denial without the team", func() error {
		return cluster.WantError(s.getsCostCenter("shop", ""), `metadata.labels[team]: got "red", want the name of a Team`)
	})
	s.helm(t, "uninstall", "fastadmit")
	s.removed(t)
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
	s.MustKubectl(t, teamDefinition+"---\n"+defaultTeam, "delete", "-f", "-")
}

// saysReady waits for a pod with this text on /readyz.
func (s *stand) saysReady(want string) error {
	list, err := s.Client.CoreV1().Pods("fastadmit").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		address, ok := strings.CutPrefix(list.Items[i].Status.PodIP, "10.")
		if !ok {
			continue
		}
		response, err := http.Get("http://127." + address + ":8080/readyz?verbose")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil && strings.Contains(string(text), want) {
			return nil
		}
		errs = append(errs, fmt.Errorf("got %s, want %s: %w", text, want, err))
	}
	return errors.Join(append(errs, errors.New("no such pod"))...)
}

// getsCostCenter creates a pod as a dry run, and checks its cost center.
func (s *stand) getsCostCenter(namespace, want string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	created, err := s.Client.CoreV1().Pods(namespace).Create(context.Background(), pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	got := created.Spec.Containers[0].Env
	if len(got) != 1 || got[0].Name != "COST_CENTER" || got[0].Value != want || created.Labels["team"] != "red" {
		return fmt.Errorf("got the labels %v and the environment %v, want the team red and the cost center %s", created.Labels, got, want)
	}
	return nil
}
