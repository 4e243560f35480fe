use super::*;
use crate::top::frame::tests::{data, frame, server};
use crate::top::server::Server;

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

fn busy() -> Vec<Server> {
    let mut metrics = String::from("# TYPE oxtsdb_requests_in_flight gauge\n");
    for at in 0..40 {
        metrics += &format!("oxtsdb_requests_in_flight{{protocol=\"http\",method=\"/api/p{at:02}\"}} 0\n");
    }
    let (head, tail) = data(1000, 100, 0)
        .split_once("# TYPE oxtsdb_requests_in_flight gauge\n")
        .map_or_else(
            || panic!("the metrics have requests"),
            |(head, tail)| (head.to_owned(), tail.to_owned()),
        );
    vec![server("a:1", None, &format!("{head}{metrics}{tail}"), 0.0)]
}

#[test]
fn a_text_has_all_rows_and_aligned_columns() {
    let servers = [server(
        "a:1",
        Some(&data(1000, 100, 0)),
        &data(1000, 300, 50),
        4.0,
    )];
    let lines = whole(&frame(&servers, Sort::Rate), 120);
    let expected = "\
tsdb top  1970-01-01 00:00:00Z  1 of 1 ready  rates over 4.0 s
SERVER  state  version  up  CPU  resident  limit
a:1  ready  0.1.0  1m40s  50%  1.0 MiB  4.0 MiB
";
    let shown = texts(&lines).join("\n");
    for line in expected.lines() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(
            shown.lines().any(|other| words(other) == words(line)),
            "{line} in\n{shown}"
        );
    }
    let at = |title: &str| {
        lines
            .iter()
            .position(|line| line.text.starts_with(title))
            .unwrap()
    };
    let (header, row) = (&lines[at("REQUESTS")].text, &lines[at("DataService/Write")].text);
    let end = |line: &str, word: &str| line.find(word).unwrap() + word.len();
    assert_eq!(
        end(header, " /s"),
        end(row, " 50.0"),
        "numbers are aligned to the right:\n{header}\n{row}"
    );
    assert_eq!(lines[at("STORE")].text, "STORE  series 5");
}

#[test]
fn long_tables_are_cut_with_the_number_of_hidden_rows() {
    let servers = busy();
    let frame = frame(&servers, Sort::Rate);
    for (height, shown) in [(100, 42), (34, 10), (18, 5)] {
        let screen = Screen::new(&frame, Choice::default(), 80, height);
        let body = texts(&screen.body);
        assert!(body.len() <= height, "{height}: {body:#?}");
        let requests = body
            .iter()
            .filter(|line| line.contains("  http ") || line.contains("  grpc "))
            .count();
        assert_eq!(requests, shown, "{height}: {body:#?}");
        let hidden = format!("  … {} more", 42 - shown);
        assert_eq!(body.contains(&hidden.as_str()), shown < 42, "{height}: {body:#?}");
    }
}

#[test]
fn fits_a_terminal_of_80_by_24() {
    let screen = Screen::new(&frame(&busy(), Sort::Rate), Choice::default(), 80, 22);
    assert!(screen.body.len() <= 22, "{:#?}", texts(&screen.body));
    for line in screen.body.iter().chain([&screen.title]) {
        assert!(line.text.chars().count() <= 80, "{}", line.text);
    }
    let narrow = Screen::new(&frame(&busy(), Sort::Rate), Choice::default(), 20, 22);
    assert!(narrow.body.iter().all(|line| line.text.chars().count() <= 20));
    assert!(narrow.title.text.ends_with('…'));
    // Nothing is too small.
    Screen::new(&frame(&busy(), Sort::Rate), Choice::default(), 0, 0);
}

#[test]
fn reasons_have_lines_of_their_own_and_no_control_characters() {
    let mut server = server("a:1", None, &data(1000, 1, 0), 0.0);
    if let Some(scrape) = &mut server.last {
        scrape.not_ready = vec!["draining\u{1b}[2J\u{202e}".to_owned(), "no store".to_owned()];
    }
    let lines = whole(&frame(&[server], Sort::Rate), 120);
    let note = lines.iter().find(|line| line.text.contains("draining")).unwrap();
    assert_eq!(note.text, "  draining\u{fffd}[2J\u{fffd}; no store");
    assert_eq!(note.style, Style::Alarm);
    assert!(
        lines
            .iter()
            .any(|line| line.style == Style::Alarm && line.text.contains("not ready"))
    );
}
