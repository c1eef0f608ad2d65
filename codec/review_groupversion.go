package codec

func (v Value) groupVersionKind() (k GroupVersionKind) {
	k.Group, k.Version, k.Kind = v.groupVersion("kind")
	return k
}

func (v Value) groupVersionResource() (g GroupVersionResource) {
	g.Group, g.Version, g.Resource = v.groupVersion("resource")
	return g
}

// groupVersion reads the strings "group", "version" and the one named last in
// one pass.
func (v Value) groupVersion(last string) (group, version, name string) {
	if group, version, name, ok := predictedGroupVersion(v.text(), last); ok {
		return group, version, name
	}
	for member, value := range v.Members() {
		switch member {
		case "group":
			group = value.String()
		case "version":
			version = value.String()
		case last:
			name = value.String()
		}
	}
	return group, version, name
}
