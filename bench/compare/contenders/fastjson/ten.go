package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/valyala/fastjson"

	"github.com/fastadmit/fastadmit/bench/compare/typed"
)

// inCluster does with JSON what typed.Cluster does with types.
type inCluster struct{ *typed.Cluster }

// ensure returns a member of an object. It creates the member if it is missing.
func ensure(v *fastjson.Value, name, empty string) *fastjson.Value {
	if !v.Exists(name) {
		v.Set(name, fastjson.MustParse(empty))
	}
	return v.Get(name)
}

func text(v *fastjson.Value, path ...string) string { return string(v.GetStringBytes(path...)) }

func quoted(s string) *fastjson.Value { return new(fastjson.Arena).NewString(s) }

// mutate runs the plugins after AlwaysPullImages.
func (c *inCluster) mutate(pod *fastjson.Value) error {
	namespace := c.Namespaces[text(pod, "metadata", "namespace")]
	if namespace == nil || namespace.Status.Phase == corev1.NamespaceTerminating {
		return errors.New("the namespace is not there")
	}
	c.limit(pod, namespace.Name)
	for _, do := range []func(spec *fastjson.Value, namespace *corev1.Namespace) error{
		c.account, selectNode, c.priority, tolerateDefaults, tolerate,
	} {
		if err := do(pod.Get("spec"), namespace); err != nil {
			return err
		}
	}
	if class := text(pod, "spec", "runtimeClassName"); class != "" {
		return fmt.Errorf("pod rejected: RuntimeClass %q not found", class)
	}
	return nil
}

func (c *inCluster) limit(pod *fastjson.Value, namespace string) {
	var set []string
	for _, limits := range c.LimitRanges[namespace] {
		for i := range limits.Spec.Limits {
			limit := &limits.Spec.Limits[i]
			for _, list := range []struct{ name, called string }{{"containers", "container"}, {"initContainers", "init container"}} {
				for _, container := range pod.GetArray("spec", list.name) {
					set = fill(set, container, list.called, "requests", "request", limit.DefaultRequest)
					set = fill(set, container, list.called, "limits", "limit", limit.Default)
				}
			}
		}
	}
	if len(set) > 0 {
		ensure(pod.Get("metadata"), "annotations", "{}").
			Set("kubernetes.io/limit-ranger", quoted("LimitRanger plugin set: "+strings.Join(set, "; ")))
	}
}

func fill(set []string, container *fastjson.Value, called, list, what string, defaults corev1.ResourceList) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if container.Exists("resources", list, string(name)) {
			continue
		}
		quantity := defaults[name]
		ensure(ensure(container, "resources", "{}"), list, "{}").Set(string(name), quoted(quantity.String()))
		names = append(names, string(name))
	}
	if len(names) == 0 {
		return set
	}
	return append(set, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), what, called, text(container, "name")))
}

func (c *inCluster) account(spec *fastjson.Value, namespace *corev1.Namespace) error {
	name := cmp.Or(text(spec, "serviceAccountName"), "default")
	spec.Set("serviceAccountName", quoted(name))
	spec.Set("serviceAccount", quoted(name))
	account := c.ServiceAccounts[namespace.Name+"/"+name]
	if account == nil {
		return fmt.Errorf("error looking up service account %s/%s", namespace.Name, name)
	}
	if spec.Exists("automountServiceAccountToken") && !spec.GetBool("automountServiceAccountToken") {
		return nil
	}
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range spec.GetArray(list) {
			if !slices.ContainsFunc(container.GetArray("volumeMounts"), func(m *fastjson.Value) bool {
				return text(m, "mountPath") == "/var/run/secrets/kubernetes.io/serviceaccount"
			}) {
				return errors.New("a container has no token")
			}
		}
	}
	return nil
}

func selectNode(spec *fastjson.Value, namespace *corev1.Namespace) error {
	selector, err := labels.ConvertSelectorToLabelsMap(namespace.Annotations["scheduler.alpha.kubernetes.io/node-selector"])
	if err != nil {
		return err
	}
	for key, value := range selector {
		has := ensure(ensure(spec, "nodeSelector", "{}"), key, string(quoted(value).MarshalTo(nil)))
		if text(has) != value {
			return errors.New("pod node label selector conflicts with its namespace node label selector")
		}
	}
	return nil
}

func (c *inCluster) priority(spec *fastjson.Value, _ *corev1.Namespace) error {
	value, policy := int32(0), string(corev1.PreemptLowerPriority)
	if name := text(spec, "priorityClassName"); name != "" {
		class := c.PriorityClasses[name]
		if class == nil {
			return fmt.Errorf("no PriorityClass with name %s was found", name)
		}
		value, policy = class.Value, string(*class.PreemptionPolicy)
	}
	if spec.Exists("priority") && spec.GetInt("priority") != int(value) {
		return fmt.Errorf("got the priority %d, want %d", spec.GetInt("priority"), value)
	}
	spec.Set("priority", fastjson.MustParse(strconv.Itoa(int(value))))
	spec.Set("preemptionPolicy", quoted(policy))
	return nil
}

func tolerateDefaults(spec *fastjson.Value, _ *corev1.Namespace) error {
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !slices.ContainsFunc(spec.GetArray("tolerations"), func(t *fastjson.Value) bool {
			key, effect := text(t, "key"), text(t, "effect")
			return (key == taint || key == "") && (effect == "NoExecute" || effect == "")
		}) {
			addToleration(spec, fastjson.MustParse(`{"key":"`+taint+`","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}`))
		}
	}
	return nil
}

func addToleration(spec, toleration *fastjson.Value) {
	list := ensure(spec, "tolerations", "[]")
	list.SetArrayItem(len(list.GetArray()), toleration)
}

func tolerate(spec *fastjson.Value, namespace *corev1.Namespace) error {
	wanted, err := fastjson.Parse(cmp.Or(namespace.Annotations["scheduler.alpha.kubernetes.io/defaultTolerations"], "[]"))
	if err != nil {
		return err
	}
	for _, want := range wanted.GetArray() {
		if !slices.ContainsFunc(spec.GetArray("tolerations"), func(t *fastjson.Value) bool {
			return text(t, "key") == text(want, "key") && text(t, "effect") == text(want, "effect") &&
				text(t, "operator") == text(want, "operator") && text(t, "value") == text(want, "value")
		}) {
			addToleration(spec, want)
		}
	}
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range spec.GetArray(list) {
			if container.Exists("resources", "requests") || container.Exists("resources", "limits") {
				addToleration(spec, fastjson.MustParse(`{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"}`))
				return nil
			}
		}
	}
	return nil
}
