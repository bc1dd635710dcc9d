package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeModules writes the modules that are linked into a program, as a software bill of materials in CycloneDX's format. The list is the
// one that the program itself carries. It has no serial number and its time is the commit's, so that it is reproducible.
func (s *source) writeModules(program, name, to string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: s.time.Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{
			BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: s.release,
			Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
			Properties: &[]cdx.Property{{Name: "commit", Value: s.commit}},
		},
	}
	components := []cdx.Component{moduleOf("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, moduleOf(m.Path, m.Version))
	}
	bom.Components = &components
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return err
	}
	return f.Close()
}

func moduleOf(path, version string) cdx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", path, strings.ReplaceAll(version, "+", "%2B"))
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}
