package typed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/corpus"
)

// A Cluster contains the objects that the scenario "ten" reads, by namespace and name.
type Cluster struct {
	Namespaces      map[string]*corev1.Namespace
	LimitRanges     map[string][]*corev1.LimitRange
	ServiceAccounts map[string]*corev1.ServiceAccount
	PriorityClasses map[string]*schedulingv1.PriorityClass
}

// NewCluster reads the cluster of the corpus.
func NewCluster() (*Cluster, error) {
	c := &Cluster{
		Namespaces: make(map[string]*corev1.Namespace), LimitRanges: make(map[string][]*corev1.LimitRange),
		ServiceAccounts: make(map[string]*corev1.ServiceAccount), PriorityClasses: make(map[string]*schedulingv1.PriorityClass),
	}
	for document := range strings.SplitSeq(string(corpus.Cluster), "\n---\n") {
		if err := c.add([]byte(document)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) add(document []byte) error {
	var meta struct{ Kind string }
	if err := yaml.Unmarshal(document, &meta); err != nil {
		return err
	}
	switch meta.Kind {
	case "Namespace":
		return put(document, func(n *corev1.Namespace) { c.Namespaces[n.Name] = n })
	case "LimitRange":
		return put(document, func(r *corev1.LimitRange) { c.LimitRanges[r.Namespace] = append(c.LimitRanges[r.Namespace], r) })
	case "ServiceAccount":
		return put(document, func(a *corev1.ServiceAccount) { c.ServiceAccounts[a.Namespace+"/"+a.Name] = a })
	case "PriorityClass":
		return put(document, func(p *schedulingv1.PriorityClass) { c.PriorityClasses[p.Name] = p })
	}
	return fmt.Errorf("got the kind %q, which the scenario has no use for", meta.Kind)
}

func put[T any](document []byte, put func(*T)) error {
	object := new(T)
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return err
	}
	put(object)
	return nil
}

// The functions below do with the scenario's Pods what kube-apiserver's plugins of these names do
// (k8s.io/kubernetes plugin/pkg/admission). They do not handle other Pods.

func (c *Cluster) namespaceAutoProvision(pod *corev1.Pod) error {
	if c.Namespaces[pod.Namespace] == nil {
		return fmt.Errorf("namespaces %q not found: the scenario makes none", pod.Namespace)
	}
	return nil
}

func (c *Cluster) namespaceLifecycle(pod *corev1.Pod) error {
	namespace := c.Namespaces[pod.Namespace]
	if namespace == nil {
		return fmt.Errorf("namespaces %q not found", pod.Namespace)
	}
	if namespace.Status.Phase == corev1.NamespaceTerminating {
		return fmt.Errorf("namespace %s is being terminated", pod.Namespace)
	}
	return nil
}

func (c *Cluster) limitRanger(pod *corev1.Pod) error {
	var set []string
	for _, limits := range c.LimitRanges[pod.Namespace] {
		for i := range limits.Spec.Limits {
			limit := &limits.Spec.Limits[i]
			for i := range pod.Spec.Containers {
				set = append(set, limitContainer("container", &pod.Spec.Containers[i], limit)...)
			}
			for i := range pod.Spec.InitContainers {
				set = append(set, limitContainer("init container", &pod.Spec.InitContainers[i], limit)...)
			}
		}
	}
	if len(set) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = make(map[string]string)
		}
		pod.Annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: " + strings.Join(set, "; ")
	}
	return nil
}

func limitContainer(kind string, container *corev1.Container, limit *corev1.LimitRangeItem) []string {
	var set []string
	fill := func(into *corev1.ResourceList, from corev1.ResourceList, what string) {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(from)) {
			if _, ok := (*into)[name]; ok {
				continue
			}
			if *into == nil {
				*into = make(corev1.ResourceList)
			}
			(*into)[name] = from[name]
			names = append(names, string(name))
		}
		if len(names) > 0 {
			set = append(set, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), what, kind, container.Name))
		}
	}
	fill(&container.Resources.Requests, limit.DefaultRequest, "request")
	fill(&container.Resources.Limits, limit.Default, "limit")
	return set
}

// serviceAccount handles accounts and Pods with and without tokens.
func (c *Cluster) serviceAccount(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default"
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account := c.ServiceAccounts[pod.Namespace+"/"+pod.Spec.ServiceAccountName]
	if account == nil {
		return fmt.Errorf("error looking up service account %s/%s", pod.Namespace, pod.Spec.ServiceAccountName)
	}
	if mounts := pod.Spec.AutomountServiceAccountToken; mounts == nil || *mounts {
		missing := false
		eachContainer(pod, func(container *corev1.Container) {
			missing = missing || !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount"
			})
		})
		if missing {
			return errors.New("a container has no token")
		}
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	return nil
}

func (c *Cluster) podNodeSelector(pod *corev1.Pod) error {
	text := c.Namespaces[pod.Namespace].Annotations["scheduler.alpha.kubernetes.io/node-selector"]
	selector, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return err
	}
	if labels.Conflicts(selector, pod.Spec.NodeSelector) {
		return errors.New("pod node label selector conflicts with its namespace node label selector")
	}
	pod.Spec.NodeSelector = labels.Merge(selector, pod.Spec.NodeSelector)
	return nil
}

func (c *Cluster) podTolerationRestriction(pod *corev1.Pod) error {
	var tolerations []corev1.Toleration
	text := cmp.Or(c.Namespaces[pod.Namespace].Annotations["scheduler.alpha.kubernetes.io/defaultTolerations"], "[]")
	if err := json.Unmarshal([]byte(text), &tolerations); err != nil {
		return err
	}
	for _, toleration := range tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&toleration) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, toleration)
		}
	}
	if hasResources(pod) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return nil
}

// hasResources reports whether the pod's quality of service is above BestEffort. It assumes that
// Pods name no other resources.
func hasResources(pod *corev1.Pod) bool {
	found := false
	eachContainer(pod, func(c *corev1.Container) { found = found || len(c.Resources.Requests)+len(c.Resources.Limits) > 0 })
	return found
}

func (c *Cluster) priority(pod *corev1.Pod) error {
	var value int32
	policy := corev1.PreemptLowerPriority
	if name := pod.Spec.PriorityClassName; name != "" {
		class := c.PriorityClasses[name]
		if class == nil {
			return fmt.Errorf("no PriorityClass with name %s was found", name)
		}
		value, policy = class.Value, *class.PreemptionPolicy
	}
	if p := pod.Spec.Priority; p != nil && *p != value {
		return fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d", *p, value)
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &value, &policy
	return nil
}

func (c *Cluster) runtimeClass(pod *corev1.Pod) error {
	if pod.Spec.RuntimeClassName != nil {
		return fmt.Errorf("pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName)
	}
	return nil
}
