//! SVG is valid and harmless. `tests/end_to_end/pictures.rs` compares PNG files with references.

mod plots;

use std::path::PathBuf;

use oxtsdb_plot::{Message, Size, Theme};

use crate::plots::gallery;

fn message(size: Size) -> Message {
    Message {
        size,
        theme: Theme::light(),
        title: "400 Bad Request".to_owned(),
        text: "No such name for 'metrics': `sys.cpu.usr`. Did you mean sys.cpu.user?\n\nThe query was \
               start=1h-ago&m=sum:sys.cpu.usr{host=*,datacenter=eu-central-1,environment=production}"
            .to_owned(),
    }
}

#[test]
fn svg_is_valid_and_has_a_title() {
    let size = Size::new(800, 400).unwrap();
    for (name, plot) in gallery(size) {
        let svg = plot.svg();
        let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
        let root = document.root_element();
        assert_eq!(root.tag_name().name(), "svg");
        assert_eq!(root.attribute("role"), Some("img"));
        let title = root.first_element_child().unwrap();
        assert_eq!(title.tag_name().name(), "title");
        assert!(!title.text().unwrap_or_default().is_empty(), "{name}");
        assert_harmless(&document, name);
        assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{name}");
    }
    roxmltree::Document::parse(&message(size).svg()).unwrap();
}

/// Only known elements and attributes, no references to other documents.
fn assert_harmless(document: &roxmltree::Document<'_>, name: &str) {
    let elements = ["svg", "title", "rect", "path", "text"];
    for element in document.descendants().filter(roxmltree::Node::is_element) {
        assert!(
            elements.contains(&element.tag_name().name()),
            "{name}: {}",
            element.tag_name().name()
        );
        for attribute in element.attributes() {
            let known = [
                "width",
                "height",
                "viewBox",
                "role",
                "font-family",
                "x",
                "y",
                "d",
                "fill",
                "fill-opacity",
                "stroke",
                "stroke-width",
                "stroke-opacity",
                "stroke-dasharray",
                "stroke-linejoin",
                "stroke-linecap",
                "font-size",
                "text-anchor",
                "transform",
                "overflow",
                "textLength",
                "lengthAdjust",
            ];
            assert!(known.contains(&attribute.name()), "{name}: {}", attribute.name());
            assert!(
                !attribute.value().contains("url"),
                "{name}: {}",
                attribute.value()
            );
        }
    }
}

#[test]
fn hostile_texts_are_escaped() {
    let hostile =
        "<script>alert(1)</script>]]>&amp;\"' onload=\"x\u{0}\u{8}\u{b}\u{1b}\u{ffff}\u{fffe}\u{202e}<!--";
    let size = Size::new(800, 400).unwrap();
    let mut plot = gallery(size).remove(7).1;
    plot.title = hostile.to_owned();
    plot.series
        .iter_mut()
        .for_each(|series| series.label = hostile.to_owned());
    plot.axes
        .iter_mut()
        .for_each(|axis| axis.label = hostile.to_owned());
    plot.marks
        .iter_mut()
        .for_each(|mark| mark.text = hostile.to_owned());
    plot.axes[0].format = "<b>\u{1}%g</b>&".parse().ok();
    let svg = plot.svg();
    let document = roxmltree::Document::parse(&svg).unwrap();
    assert_harmless(&document, "hostile");
    assert!(
        svg.chars()
            .all(|character| character == '\n' || !character.is_control())
    );
    for forbidden in ['\u{ffff}', '\u{fffe}', '\u{202e}'] {
        assert!(!svg.contains(forbidden));
    }
    let title = document.root_element().first_element_child().unwrap();
    assert!(
        title
            .text()
            .unwrap()
            .starts_with("<script>alert(1)</script>]]>&amp;\"'")
    );
    let message = Message {
        size,
        theme: Theme::dark(),
        title: hostile.to_owned(),
        text: hostile.to_owned(),
    };
    assert_harmless(&roxmltree::Document::parse(&message.svg()).unwrap(), "message");
}

#[test]
fn no_data_is_said() {
    let size = Size::new(800, 400).unwrap();
    for (name, plot) in gallery(size) {
        assert_eq!(plot.svg().contains(">no data<"), name == "empty", "{name}");
    }
}

/// Writes the gallery to a folder, to look at: `OXTSDB_PLOT_GALLERY=FOLDER cargo test -p oxtsdb-plot -- --ignored`.
#[test]
#[ignore = "writes files to look at"]
fn write_the_gallery() {
    let Some(folder) = std::env::var_os("OXTSDB_PLOT_GALLERY").map(PathBuf::from) else {
        return;
    };
    for (width, height) in [(320, 200), (800, 400), (1600, 900), (120, 80)] {
        let size = Size::new(width, height).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        for (name, plot) in gallery(size) {
            std::fs::write(folder.join(format!("{name}-{size}.png")), plot.png()).unwrap();
            std::fs::write(folder.join(format!("{name}-{size}.svg")), plot.svg()).unwrap();
        }
        std::fs::write(folder.join(format!("message-{size}.png")), message(size).png()).unwrap();
    }
}
